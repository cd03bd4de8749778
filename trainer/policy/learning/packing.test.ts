import t from 'tap';
import { Random } from '../../../shared/random.ts';
import { countLossTokens } from '../../algorithms/losses/aggregation.ts';
import { lossStructure } from '../../algorithms/losses/inputs.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { initialize, parameterSpecs } from '../../models/parameters.ts';
import { OnnxRuntime } from '../../tensor/runtime/onnx/onnx-runtime.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import { KernelCpuRuntime } from '../../tensor/runtime/webgpu/cpu-runtime.test-data.ts';
import { WebGpuRuntime } from '../../tensor/runtime/webgpu/webgpu-runtime.ts';
import { config, largestDifference, vocabularySize } from '../policies.test-data.ts';
import { planMicroBatches } from './micro-batches.ts';
import { ScoreProgram } from './score-program.ts';
import { GradientProgram } from './train-program.ts';

/** Null where this machine has none. */
const runtimes: readonly (readonly [string, Runtime | null])[] = [
  ['ONNX Runtime', new OnnxRuntime()],
  ['ONNX Runtime on two threads', new OnnxRuntime({ threads: 2 })],
  ['gpu.js on the processor', new KernelCpuRuntime()],
  ['WebGPU', await WebGpuRuntime.open()],
];
t.after(async () => {
  for (const [, runtime] of runtimes) await runtime?.close();
});

const LENGTHS = [40, 9, 23, 5, 31, 2, 12, 17];
const TOLERANCE = 2e-5;

const losses: { readonly [name: string]: Partial<LossSettings> } = {
  ppo: { kl: { estimator: 'k3', coefficient: 0.1 } },
  'ppo without entropy': { entropyCoefficient: 0, aggregation: 'seq_mean_token_mean' },
  gspo: { policy: 'gspo', aggregation: 'seq_mean_token_mean', clipLow: 0.01, clipHigh: 0.02 },
  'decoupled PPO': { policy: 'decoupled_ppo', offPolicy: { kind: 'tis', cap: 1.5 } },
  cross_entropy: { policy: 'cross_entropy', entropyCoefficient: 0 },
};

/** Losses of the first runtime: all, because their graphs are the same everywhere. The others run some. */
const ALL: readonly (readonly [loss: string, share: number])[] = [
  ['ppo', 0.3],
  ['ppo without entropy', 1],
  ['gspo', 0.3],
  ['decoupled PPO', 0.3],
  ['cross_entropy', 1],
];
const SOME: typeof ALL = [['gspo', 0.3]];
const SHARES = [0.3, 1];

/** Sequences of unequal lengths that are masked in some tokens, or in all but the first. */
function sequences(share: number): TrainingSequence[] {
  const rng = Random.fromSeed(7);
  return LENGTHS.map((length, n) => {
    const floats = (scale: number) => Float32Array.from({ length }, () => scale * rng.normal());
    const logProbs = Float32Array.from({ length }, () => -3 + 0.2 * rng.normal());
    const near = () => logProbs.map(x => x + 0.2 * rng.normal());
    return {
      tokenIds: Int32Array.from({ length }, () => rng.integer(vocabularySize)),
      lossMask: Uint8Array.from({ length }, (_, t) => (t > 0 && (t === 1 || rng.float() < share) ? 1 : 0)),
      entropyMask: Uint8Array.from({ length }, (_, t) => t % 2),
      logProbs,
      advantages: floats(1),
      returns: floats(1),
      values: floats(0.1),
      referenceLogProbs: near(),
      proximalLogProbs: near(),
      weight: 1 + n / 8,
    };
  });
}

/** Groups of sequences with one prompt each, and some without a companion. Some prompts begin alike. */
function groups(): TrainingSequence[] {
  const rng = Random.fromSeed(11);
  const wholes = sequences(1);
  const prompts = [30, 23, 17, 30].map(length =>
    Int32Array.from({ length }, () => rng.integer(vocabularySize)),
  );
  prompts[1].set(prompts[0].subarray(0, 12));
  prompts[2].set(prompts[1].subarray(0, 16));
  return [0, 0, 0, 1, 1, 2, 0, 1, 3, 3, 3].map((of, n) => {
    const whole = wholes[n % wholes.length];
    const prompt = prompts[of];
    const length = prompt.length + 2 + (n % 5);
    const floats = (scale: number) => Float32Array.from({ length }, () => scale * rng.normal());
    return {
      ...whole,
      tokenIds: Int32Array.from({ length }, (_, t) => prompt[t] ?? rng.integer(vocabularySize)),
      // With a turn of the environment between two of the policy's.
      lossMask: Uint8Array.from({ length }, (_, t) =>
        t >= prompt.length && t !== prompt.length + 2 ? 1 : 0,
      ),
      entropyMask: Uint8Array.from({ length }, (_, t) => t % 2),
      logProbs: floats(0.2).map(x => x - 3),
      advantages: floats(1),
      returns: floats(1),
      values: floats(0.1),
      referenceLogProbs: floats(0.2).map(x => x - 3),
      proximalLogProbs: floats(0.2).map(x => x - 3),
    };
  });
}

for (const [place, runtime] of runtimes) {
  t.test(`on ${place}`, { skip: runtime === null && 'no GPU here that Dawn can use' }, async t => {
    const specs = parameterSpecs(config, true);
    const store = new ParameterStore(specs);
    initialize(store, specs, 0.2, 3);
    store.array('value_head.weight').fill(0.1);
    const options = {
      config,
      valueHead: true,
      critic: false,
      runtime: runtime!,
      parameters: store,
      trained: store,
      grammars: new Map(),
      tokenBudget: 128,
    };
    const [packed, padded] = [true, false].map(packing => new GradientProgram({ ...options, packing }));
    const cases = runtime === runtimes[0][1] ? ALL : SOME;
    const batches = [
      ...cases.map(([name, share]) => ({ name, share, batch: sequences(share), shared: false })),
      ...cases.map(([name]) => ({ name, share: 'prompts', batch: groups(), shared: true })),
    ];
    for (const { name, share, batch, shared } of batches) {
      const plan = planMicroBatches(batch, { ...options, packing: true });
      t.ok(plan.length > 1 && plan.some(one => one.packed !== null), 'there is something to pack');
      t.equal(
        plan.some(one => one.packed?.shared),
        shared,
        'there are prompts to share',
      );
      const loss = { ...DEFAULT_LOSS_SETTINGS, ...losses[name] };
      const task = {
        sequences: batch,
        loss,
        structure: lossStructure(loss, { value: true, entropy: loss.policy !== 'cross_entropy' }),
        counts: countLossTokens(batch),
        temperature: 0.8,
        version: 0,
        lossScale: 1,
      };
      const [gradient, wanted] = [store.emptyLike().flat, store.emptyLike().flat];
      const { metrics } = await packed.run(task, gradient);
      const { metrics: expected } = await padded.run(task, wanted);
      const largest = Math.max(...wanted.map(Math.abs));
      t.ok(largest > 1e-3);
      t.ok(
        largestDifference(gradient, wanted) < TOLERANCE * largest,
        `${name}, ${share} of the tokens: gradients differ by ${largestDifference(gradient, wanted)}`,
      );
      for (const [metric, value] of Object.entries(expected)) {
        t.ok(Math.abs(metrics[metric] - value) < TOLERANCE, `${name}: ${metric}`);
      }
    }
    const scores = async (packing: boolean, batch: TrainingSequence[]) =>
      new ScoreProgram({ ...options, packing }).run(batch, 0.8);
    for (const batch of [...SHARES.map(sequences), groups()]) {
      const [given, wanted] = [await scores(true, batch), await scores(false, batch)];
      wanted.forEach((score, i) => {
        for (const name of ['logProbs', 'entropies', 'values'] as const) {
          t.ok(largestDifference(given[i][name]!, score[name]!) < TOLERANCE, `${name} of sequence ${i}`);
        }
      });
    }
  });
}
