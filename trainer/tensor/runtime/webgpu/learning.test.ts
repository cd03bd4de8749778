import t from 'tap';
import { GraphBuilder } from '../../graph/graph.ts';
import { ParameterStore } from '../parameter-store.ts';
import type { AdamwFactors, Runtime } from '../runtime.ts';
import { adamwKernel } from '../wasm/kernels.ts';
import { KernelCpuRuntime } from './cpu-runtime.test-data.ts';
import { WebGpuRuntime } from './webgpu-runtime.ts';

const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['gpu.js cpu', new KernelCpuRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

const LAYOUT = [
  { name: 'matrix', shape: [70, 130] },
  { name: 'number', shape: [1] },
];
const factors: AdamwFactors = {
  scale: 0.5,
  beta1: 0.9,
  beta2: 0.99,
  keep: 0.999,
  stepSize: 0.01,
  inverseRoot: 3,
  epsilon: 1e-8,
};

function filled(seed: number): ParameterStore {
  const store = new ParameterStore(LAYOUT);
  LAYOUT.forEach(({ name }, i) => {
    store.array(name).forEach((_, j, array) => {
      array[j] = Math.abs(Math.sin(seed + i + j * 0.7));
    });
  });
  return store;
}

/** Gradients: 3 · x of the matrix, 2 of the number. */
function graph() {
  const g = new GraphBuilder();
  const x = g.input('x', 'float32', [70, 130]);
  g.output('matrix', g.mul(x, 3));
  g.output('number', g.constant([2], [1]));
  g.output('sum', g.sum(g.mul(x, g.parameter('matrix', [70, 130]))));
  return g.build();
}

for (const [place, runtime] of runtimes) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  t.test(`gradients add up and weights are stepped on ${place} as on the processor`, options, async t => {
    const [weights, first, second] = [filled(1), filled(2), filled(3)];
    const learner = await runtime!.memory!.learner({ weights, first, second });
    const executable = await runtime!.compile(graph(), { parameters: weights, sums: learner.gradients });
    const x = Float32Array.from({ length: 70 * 130 }, (_, i) => Math.cos(i));
    learner.clear();
    const before = { ...(await executable.run({ x })) };
    t.strictSame(Object.keys(before), ['sum'], 'what is added up does not come back');
    const sumBefore = before.sum[0];
    await executable.run({ x });
    const squares = x.reduce((total, value) => total + (6 * value) ** 2, 4 ** 2);
    t.ok(Math.abs((await learner.sumOfSquares()) / squares - 1) < 1e-5);

    const wanted = { weights: filled(1).flat, first: filled(2).flat, second: filled(3).flat };
    const gradients = new ParameterStore(LAYOUT);
    gradients.array('matrix').set(x.map(value => 6 * value));
    gradients.array('number')[0] = 4;
    adamwKernel({ ...wanted, gradients: gradients.flat }, factors, 0, wanted.weights.length);
    await learner.step(factors);
    const after = await executable.run({ x });
    t.not(after.sum[0], sumBefore, 'the next run sees the new weights');
    await learner.download();
    for (const [name, array] of Object.entries({ weights, first, second })) {
      const expected = wanted[name as keyof typeof wanted];
      const worst = array.flat.reduce((most, value, i) => Math.max(most, Math.abs(value - expected[i])), 0);
      t.ok(worst < 1e-6, `${name} differ by ${worst}`);
    }

    learner.clear();
    t.equal(await learner.sumOfSquares(), 0);
    weights.flat.fill(0);
    weights.touch();
    t.equal((await executable.run({ x })).sum[0], 0, 'what is written into the store counts');
  });
}

t.test('sums that do not fit are named', async t => {
  const runtime = new KernelCpuRuntime();
  const parameters = filled(1);
  const [one, two] = await Promise.all([1, 2].map(length => runtime.memory.allocate('sum', length)));
  await t.rejects(runtime.compile(graph(), { parameters, sums: { nothing: one } }), /no output 'nothing'/);
  await t.rejects(
    runtime.compile(graph(), { parameters, sums: { number: two } }),
    /'number' has 1 elements, its sum 2/,
  );
  await t.rejects(
    runtime.compile(graph(), { parameters, resident: { x: two } }),
    /'x' is float32\[70,130\].* has 2 elements/,
  );
});
