/**
 * An update on episodes of unequal length, packed and padded: how much of what is computed is padding, and tokens a second.
 *
 *     npm run bench:packing [-- --shapes nano,0.8M --episodes 64 --rounds 5 --threads 1]
 *
 * Episodes have one to eight turns of a prompt and a response, which is trained on. Both sides take turns, and the median of
 * their steps counts, in the processor's time over all threads, so that other programs on the machine count little. Tokens are
 * those of the episodes, without padding.
 */

import { Random } from '../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS } from '../trainer/algorithms/losses/settings.ts';
import type { TrainingSequence } from '../trainer/algorithms/training-sequence.ts';
import { DEFAULT_TOKEN_BUDGET, planMicroBatches } from '../trainer/policy/learning/micro-batches.ts';
import { LocalPolicy } from '../trainer/policy/local-policy.ts';
import type { UpdateSettings } from '../trainer/policy/policy.ts';
import { configOf, type Shape, shapeNamed } from './compute/shapes.ts';
import { positiveInteger, scriptFlags } from './flags.ts';
import { cpuMsSince, median } from './measuring.ts';

const MAX_TURNS = 8;
const PROMPT = { least: 10, most: 16 };
const RESPONSE = { least: 3, most: 8 };
const SETTINGS: UpdateSettings = {
  loss: DEFAULT_LOSS_SETTINGS,
  optimizer: { learningRate: 1e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 },
  temperature: 1,
};

const { values: flags } = scriptFlags(import.meta.filename, {
  options: {
    shapes: { type: 'string', default: 'nano,0.8M' },
    episodes: { type: 'string', default: '64' },
    rounds: { type: 'string', default: '5' },
    threads: { type: 'string', default: '1' },
  },
});
const [count, rounds, threads] = (['episodes', 'rounds', 'threads'] as const).map(name =>
  positiveInteger(name, flags[name]),
);

for (const name of flags.shapes.split(',')) {
  const shape = shapeNamed(name);
  await compare(shape);
}

async function compare(shape: Shape): Promise<void> {
  const rng = Random.fromSeed(1);
  const sequences = Array.from({ length: count }, () => episode(rng, shape));
  const tokens = sequences.reduce((sum, { tokenIds }) => sum + tokenIds.length - 1, 0);
  const lengths = sequences.map(({ tokenIds }) => tokenIds.length);
  console.log(
    `${shape.name}: ${count} episodes of ${Math.min(...lengths)} to ${Math.max(...lengths)} tokens, ${threads} thread${threads > 1 ? 's' : ''}`,
  );
  const sides = [true, false].map(packing => ({ packing, times: [] as number[] }));
  const policies = new Map<boolean, LocalPolicy>();
  for (const { packing } of sides) {
    policies.set(
      packing,
      await LocalPolicy.create({
        model: configOf(shape),
        seed: 0,
        valueHead: false,
        maxOpenSequences: 1,
        packing,
        ...(shape.large ? { workers: 1, threads } : { workers: threads }),
      }),
    );
  }
  for (let round = 0; round <= rounds; round++) {
    for (const { packing, times } of sides) {
      const before = process.cpuUsage();
      await policies.get(packing)!.update({ sequences }, SETTINGS);
      if (round > 0) times.push(cpuMsSince(before));
    }
  }
  for (const { packing, times } of sides) {
    const plan = planMicroBatches(sequences, {
      tokenBudget: DEFAULT_TOKEN_BUDGET,
      packing,
      config: configOf(shape),
    });
    const computed = plan.reduce((sum, { rows, time, packed }) => sum + (packed?.tokens ?? rows * time), 0);
    console.log(
      `  ${packing ? 'packed' : 'padded'}: ${plan.length} micro-batches of one worker, ${((100 * (computed - tokens)) / computed).toFixed(1)} % padding; ${median(times).toFixed(1)} ms (best ${Math.min(...times).toFixed(1)}), ${Math.round((1000 * tokens) / median(times)).toLocaleString('en')} tokens/s`,
    );
    await policies.get(packing)!.close();
  }
}

function episode(rng: Random, shape: Shape): TrainingSequence {
  const tokens: number[] = [];
  const lossMask: number[] = [];
  const turns = 1 + rng.integer(MAX_TURNS);
  const between = ({ least, most }: typeof PROMPT) => least + rng.integer(most - least + 1);
  for (let turn = 0; turn < turns; turn++) {
    for (const [length, trained] of [
      [between(PROMPT), 0],
      [between(RESPONSE), 1],
    ]) {
      for (let t = 0; t < length; t++) {
        tokens.push(rng.integer(shape.vocabulary));
        lossMask.push(trained);
      }
    }
  }
  const floats = (scale: number) => Float32Array.from(tokens, () => scale * rng.normal());
  return {
    tokenIds: Int32Array.from(tokens),
    lossMask: Uint8Array.from(lossMask),
    logProbs: floats(0.1).map(x => x - Math.log(shape.vocabulary)),
    advantages: floats(1),
  };
}
