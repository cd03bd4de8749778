import t, { type Test } from 'tap';
import { golden } from '../../../test/golden.test-data.ts';
import { GraphBuilder } from '../graph/graph.ts';
import { MuonShare } from './muon.ts';
import { openRuntime } from './open-runtime.ts';
import { ParameterStore } from './parameter-store.ts';
import type { AdamwFactors, MuonFactors, Runtime } from './runtime.ts';
import { KernelCpuRuntime } from './webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from './webgpu/webgpu-runtime.ts';

interface Golden {
  readonly lr: number;
  readonly momentum: number;
  readonly weight_decay: number;
  readonly cases: { readonly [name: string]: GoldenCase };
}

interface GoldenCase {
  readonly shape: readonly number[];
  readonly start: readonly number[];
  readonly gradients: readonly (readonly number[])[];
  readonly weights: readonly (readonly number[])[];
}

const { lr, momentum, weight_decay: weightDecay, cases } = golden<Golden>('muon.json');
const CASES = Object.entries(cases).map(([name, known]) => [`model.layers.0.${name}.weight`, known] as const);
/** A matrix outside of layers. */
const EMBEDDING = 'model.embed_tokens.weight';
const LAYOUT = [
  { name: EMBEDDING, shape: [5, 4] },
  ...CASES.map(([name, { shape }]) => ({ name, shape })),
  { name: 'model.layers.0.square.lora_A.weight', shape: [2, 6] },
  { name: 'model.norm.weight', shape: [4] },
];
const SCALE = 0.5;
const muon: MuonFactors = { scale: SCALE, momentum, learningRate: lr, weightDecay };
const adamw: AdamwFactors = {
  scale: SCALE,
  beta1: 0.9,
  beta2: 0.99,
  keep: 1,
  stepSize: 0.01,
  inverseRoot: 3,
  epsilon: 1e-8,
};

function begun() {
  const [weights, first, second] = [1, 2, 3].map(() => new ParameterStore(LAYOUT));
  for (const [name, { start }] of CASES) weights.array(name).set(start);
  return { weights, first, second };
}

/** Gradients of a step as they come before their scale. */
function gradientsOf(step: number): ParameterStore {
  const store = new ParameterStore(LAYOUT);
  for (const [name, { gradients }] of CASES) store.array(name).set(gradients[step].map(x => x / SCALE));
  store.array(EMBEDDING).fill(2);
  return store;
}

/** A program that gives the gradients of a step. */
function gradientGraph(step: number) {
  const g = new GraphBuilder();
  const gradients = gradientsOf(step);
  for (const { name, shape } of LAYOUT) g.output(name, g.constant(gradients.array(name), shape));
  return g.build();
}

function compare(t: Test, weights: ParameterStore, step: number): void {
  for (const [name, known] of CASES) {
    const worst = known.weights[step].reduce(
      (most, x, i) => Math.max(most, Math.abs(x - weights.array(name)[i])),
      0,
    );
    t.ok(worst < 2e-5, `step ${step + 1} of ${name} differs by ${worst}`);
  }
}

for (const count of [1, 2, 5]) {
  t.test(`${count} workers step matrices as torch.optim.Muon does`, async t => {
    const runtime = await openRuntime('onnx', 1);
    t.teardown(() => runtime.close());
    const { weights, first, second } = begun();
    const shares = await Promise.all(
      Array.from({ length: count }, (_, index) => MuonShare.compile(runtime, weights, index, count)),
    );
    for (let step = 0; step < 3; step++) {
      const gradients = gradientsOf(step).flat;
      const arrays = { weights: weights.flat, gradients, first: first.flat, second: second.flat };
      for (const share of shares) await share.step(arrays, muon);
      compare(t, weights, step);
    }
    t.ok(
      weights.array(EMBEDDING).every(x => x === 0),
      'what is no matrix of a layer is left to AdamW',
    );
  });
}

t.test('AdamW steps every element that is of no matrix, once', async t => {
  const runtime = await openRuntime('onnx', 1);
  t.teardown(() => runtime.close());
  const { weights } = begun();
  const share = await MuonShare.compile(runtime, weights, 0, 1);
  const { length } = weights.flat;
  const times = new Array<number>(length).fill(0);
  for (const [start, end] of [
    [0, 30],
    [30, 31],
    [31, 100],
    [100, length],
  ]) {
    for (const [from, to] of share.others(start, end)) for (let i = from; i < to; i++) times[i]++;
  }
  const wanted = new Array<number>(length).fill(1);
  for (const [name] of CASES) wanted.fill(0, ...weights.spanOf(name));
  t.strictSame(times, wanted);
});

const devices: readonly (readonly [string, Runtime | null])[] = [
  ['gpu.js cpu', new KernelCpuRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
];
t.after(async () => {
  for (const [, runtime] of devices) await runtime?.close();
});

for (const [place, runtime] of devices) {
  const options = { skip: runtime === null ? 'no GPU here that Dawn can use' : false };
  t.test(`a learner on ${place} steps matrices as torch.optim.Muon does`, options, async t => {
    const state = begun();
    const learner = await runtime!.memory!.learner(state);
    const { weights } = state;
    for (let step = 0; step < 3; step++) {
      const graph = gradientGraph(step);
      const executable = await runtime!.compile(graph, { sums: learner.gradients });
      learner.clear();
      await executable.run({});
      await learner.step(adamw, muon);
      await learner.download();
      compare(t, weights, step);
    }
    const { first, second } = state;
    t.ok(
      weights.array(EMBEDDING).every(x => x < 0),
      'AdamW steps what is no matrix',
    );
    for (const [name] of CASES) {
      t.ok(first.array(name).some(x => x !== 0));
      t.ok(
        second.array(name).every(x => x === 0),
        'Muon keeps no second moment',
      );
    }
  });
}
