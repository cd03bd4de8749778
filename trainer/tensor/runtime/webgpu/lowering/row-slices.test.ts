import t from 'tap';
import { parseConfig } from '../../../../models/config-json.ts';
import { buildLoss, goldenBatch, goldenWeights, read } from '../../../../models/golden.test-data.ts';
import { parameterSpecs } from '../../../../models/parameters.ts';
import { GraphBuilder, type Tensor } from '../../../graph/graph.ts';
import { interpret } from '../../../graph/interpreter.test-data.ts';
import { runContractSuite } from '../../contract-suite.test-data.ts';
import { KernelCpuRuntime } from '../cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../webgpu-runtime.ts';

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
