import t from 'tap';
import { parseConfig } from '../../../../models/config-json.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from '../../../../models/golden.test-data.ts';
import { parameterSpecs } from '../../../../models/parameters.ts';
import { GraphBuilder, type Tensor } from '../../../graph/graph.ts';
import { interpret } from '../../../graph/interpreter.test-data.ts';
import { runContractSuite } from '../../contract-suite.test-data.ts';
import { planSlots } from '../compiled-program.ts';
import { KernelCpuRuntime } from '../cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';
import {
  broadcastStrides,
  collapse,
  cutBox,
  type DeviceValue,
  type KernelDispatch,
  offsetOf,
  type Program,
  sliceOf,
  spanOf,
  startOf,
  wholeOf,
  windowOf,
} from './program.ts';

const runtime = await WebGpuRuntime.open();
t.after(() => runtime?.close());
const skip = runtime === null ? 'no GPU here that Dawn can use' : false;

t.test('axes may be longer than those of a dispatch', { skip }, async t => {
  // 8 threads a workgroup and 65,535 workgroups an axis reach to 524,280.
  for (const [rows, columns] of [
    [524_288, 3],
    [3, 524_288],
  ]) {
    const g = new GraphBuilder();
    g.output('y', g.mul(g.input('left', 'float32', [rows, 1]), g.input('right', 'float32', [1, columns])));
    const executable = await runtime!.compile(g.build());
    const left = Float32Array.from({ length: rows }, (_, i) => 1 + (i % 1000));
    const right = Float32Array.from({ length: columns }, (_, i) => 1 + (i % 1000));
    const { y } = await executable.run({ left, right });
    const wrong = y.findIndex((value, i) => value !== left[Math.floor(i / columns)] * right[i % columns]);
    t.equal(wrong, -1, `${rows} × ${columns}`);
    await executable.dispose();
  }
});

t.test('axes that all operands walk as one are merged', async t => {
  t.strictSame(collapse([2, 3, 4], [[12, 4, 1]]), { extents: [24], strides: [[1]] });
  t.strictSame(
    collapse(
      [2, 3, 4],
      [
        [12, 4, 1],
        [0, 1, 0],
      ],
    ),
    {
      extents: [4, 3, 2],
      strides: [
        [1, 4, 12],
        [0, 1, 0],
      ],
    },
  );
  t.strictSame(
    collapse(
      [5, 1, 6],
      [
        [6, 6, 1],
        [0, 0, 0],
      ],
    ),
    { extents: [30], strides: [[1], [0]] },
  );
  t.strictSame(collapse([], [[]]), { extents: [1], strides: [[0]] });
});

t.test('an operand repeats where it has one entry or no axis', async t => {
  t.strictSame(broadcastStrides([3, 1], [2, 3, 4]), [0, 1, 0]);
  t.strictSame(broadcastStrides([], [2, 3]), [0, 0]);
  t.strictSame(broadcastStrides([2, 3], [2, 3]), [3, 1]);
});

const value: DeviceValue = { id: 1, length: 1000 };

t.test('parts of parts are parts of the whole', async t => {
  const part = sliceOf(sliceOf(value, 100, 500), 30, 20);
  t.equal(wholeOf(part), value);
  t.equal(startOf(part), 130);
  t.equal(part.length, 20);
  t.equal(sliceOf(value, 0, 1000), value);
});

t.test('a window begins where a binding may', async t => {
  const window = windowOf(sliceOf(value, 100, 500), 30, 20);
  t.equal(startOf(window.value), 128);
  t.equal(window.start, 2);
  t.equal(window.value.length, 22);
});

t.test('a box is cut until all operands fit, and every element is in one piece', async t => {
  const extents = [10, 300, 3];
  const strides = [
    [1, 10, 3000],
    [300, 1, 3000],
    [0, 0, 1],
  ];
  const pieces = cutBox(extents, strides, 700);
  const seen = new Set<number>();
  let count = 0;
  for (const piece of pieces) {
    for (const own of strides) t.ok(spanOf(piece.extents, own) <= 700);
    const from = offsetOf(piece, strides[0]);
    for (let z = 0; z < piece.extents[2]; z++) {
      for (let y = 0; y < piece.extents[1]; y++) {
        for (let x = 0; x < piece.extents[0]; x++) {
          seen.add(from + x + 10 * y + 3000 * z);
          count++;
        }
      }
    }
  }
  t.equal(count, 9000);
  t.equal(seen.size, 9000);
  t.same(cutBox(extents, strides, 9000).length, 1);
});

/** Bytes of an array that a shader may bind: less than the embeddings, weights or logits of the golden models. */
const FEW = 20 * 1024;
const MODEL = 'qwen2-tiny';

/** Elements that kernels in JavaScript may bind: the smallest alignment of a binding. */
const LEAST = 64;
/** Elements for the larger operands below. */
const SOME = 192;

t.test('kernels over pieces do what operations mean', t =>
  runContractSuite(t, () => new KernelCpuRuntime(LEAST), { large: false }),
);

const waves = (length: number, phase: number) =>
  Float32Array.from({ length }, (_, i) => Math.sin(phase + 0.37 * i));

const LARGER: readonly (readonly [string, (g: GraphBuilder, x: Tensor, y: Tensor) => Tensor])[] = [
  ['a product', (g, x, y) => g.matmul(x, y, { transposeB: true })],
  ['a product of columns', (g, x, y) => g.matmul(x, y, { transposeA: true })],
  ['a product of a batch', (g, x, y) => g.matmul(g.reshape(x, [4, 5, 35]), g.reshape(y, [4, 35, 5]))],
  ['a transposed sum', (g, x, y) => g.add(g.transpose(x, [1, 0]), g.transpose(y, [1, 0]))],
  ['a broadcast row', (g, x, y) => g.mul(x, g.slice(y, 0, 3, 4))],
  ['a broadcast column', (g, x, y) => g.mul(x, g.slice(y, 1, 3, 4))],
  ['a softmax', (g, x) => g.softmax(x)],
  ['sums of columns', (g, x, y) => g.sum(g.concat([x, y, x, y], 0), [0])],
  ['rows of a table', (g, x) => g.gather(x, g.constant([19, 0, 7, 7, 3], [5], 'int32'))],
  [
    'rows added up',
    (g, x) =>
      g.scatterAddRows(
        x,
        g.constant(
          [...Array(20).keys()].map(i => i % 9),
          [20],
          'int32',
        ),
        30,
      ),
  ],
  ['entries taken', (g, x) => g.takeLast(x, g.constant([...Array(20).keys()], [20], 'int32'))],
];
for (const [what, build] of LARGER) {
  t.test(`${what} in pieces`, async t => {
    const g = new GraphBuilder();
    g.output('z', build(g, g.input('x', 'float32', [20, 35]), g.input('y', 'float32', [20, 35])));
    const graph = g.build();
    const inputs = { x: waves(700, 1), y: waves(700, 2) };
    const { z: wanted } = interpret(graph, inputs);
    const { z: given } = await (await new KernelCpuRuntime(SOME).compile(graph)).run(inputs);
    const worst = wanted.reduce((most, x, i) => Math.max(most, Math.abs(x - given[i])), 0);
    t.ok(worst < 1e-5, `differs by ${worst}`);
  });
}

const whole = await WebGpuRuntime.open();
const cut = await WebGpuRuntime.open('float32', { largestBinding: FEW });
t.after(async () => {
  await whole?.close();
  await cut?.close();
});
const onGpu = { skip: whole === null ? 'no GPU here that Dawn can use' : false };

/** The golden model's loss and gradients, and its weights after a step of AdamW with these. */
async function learn(runtime: WebGpuRuntime): Promise<Readonly<Record<string, Float32Array>>> {
  const config = parseConfig(read(MODEL, 'config.json'));
  const batch = goldenBatch(MODEL);
  const weights = await goldenWeights(MODEL, config);
  const [first, second] = [weights.emptyLike(), weights.emptyLike()];
  const graph = buildLoss(config, batch, parameterSpecs(config, false));
  const inputs = { ids: Int32Array.from(batch.ids.flat()), mask: Float32Array.from(batch.mask.flat()) };
  const executable = await runtime.compile(graph, { parameters: weights });
  const given = (await executable.run(inputs)) as Readonly<Record<string, Float32Array>>;
  const learner = await runtime.memory.learner({ weights, first, second });
  const summing = await runtime.compile(graph, { parameters: weights, sums: learner.gradients });
  learner.clear();
  await summing.run(inputs);
  const squares = Float32Array.of(await learner.sumOfSquares());
  const factors = { beta1: 0.9, beta2: 0.99, keep: 0.999, stepSize: 0.01, inverseRoot: 10, epsilon: 1e-3 };
  await learner.step({ scale: 1, ...factors });
  await learner.download();
  return { ...given, squares, weights: weights.flat, first: first.flat, second: second.flat };
}

t.test(
  'a golden model with tables that do not fit a binding learns as one with tables that do',
  onGpu,
  async t => {
    const config = parseConfig(read(MODEL, 'config.json'));
    t.ok(4 * config.vocabularySize * config.hiddenSize > 6 * FEW, 'the embeddings take several pieces');
    const [wanted, given] = [await learn(whole!), await learn(cut!)];
    for (const [name, values] of Object.entries(wanted)) {
      const largest = values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
      const worst = values.reduce((most, x, i) => Math.max(most, Math.abs(x - given[name][i])), 0);
      t.ok(worst <= 1e-5 * largest, `${name} differs by ${worst} of ${largest}`);
    }
  },
);

t.test('errors of arrays that cannot be cut name the setting', onGpu, async t => {
  const g = new GraphBuilder();
  const [q, k, v] = ['q', 'k', 'v'].map(name => g.input(name, 'float32', [1, 90, 4, 16]));
  g.output('y', g.attention(q, k, v, { causal: true }));
  await t.rejects(
    cut!.compile(g.build()),
    /'attention forward' on 'q' takes 23040 bytes of an array, this GPU gives a shader at most 20480 bytes in one piece: lower policy.micro_batch_tokens/,
  );
});

const slotsValue = (id: number, length = 100): DeviceValue => ({ id, length });

function program(
  steps: readonly [reads: DeviceValue[], writes: DeviceValue[]][],
  parts: Partial<Program>,
): Program {
  return {
    steps: steps.map(([reads, writes]) => ({ reads, writes }) as unknown as KernelDispatch),
    inputs: new Map(),
    parameters: new Map(),
    outputs: new Map(),
    constants: new Map(),
    ...parts,
  };
}

t.test('arrays share a slot when one is read for the last time before the other is written', async t => {
  const [x, a, b, c] = [slotsValue(0), slotsValue(1), slotsValue(2), slotsValue(3)];
  const chain = program(
    [
      [[x], [a]],
      [[a], [b]],
      [[b], [c]],
    ],
    { inputs: new Map([['x', x]]), outputs: new Map([['c', c]]) },
  );
  const { slots, slotOf } = planSlots(chain);
  t.strictSame(slots, [100, 100]);
  t.equal(slotOf.get(c), slotOf.get(a));
  t.not(slotOf.get(b), slotOf.get(a));
  t.notOk(slotOf.has(x));
});

t.test('outputs keep their slot, and a large slot is not spent on a small array', async t => {
  const [x, a, b, c] = [slotsValue(0), slotsValue(1), slotsValue(2), slotsValue(3, 10)];
  const plan = planSlots(
    program(
      [
        [[x], [a]],
        [[x], [b]],
        [[b], [c]],
        [[c], [slotsValue(4)]],
      ],
      { inputs: new Map([['x', x]]), outputs: new Map([['a', a]]) },
    ),
  );
  t.strictSame(plan.slots, [100, 100, 10]);
  t.equal(plan.slotOf.get(b), 1);
});
