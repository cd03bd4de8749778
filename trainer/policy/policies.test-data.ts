import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Random } from '../../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import type { SamplingSettings } from '../generation/generation.ts';
import { scratchConfig } from '../models/config.ts';
import { LocalPolicy, type LocalPolicyOptions } from './local-policy.ts';
import type { UpdateSettings } from './policy.ts';

/** Tiny policy of the tests, the episodes it plays, and settings of an update. */
export const vocabularySize = 24;
export const config = scratchConfig({
  vocabularySize,
  hiddenSize: 16,
  heads: 2,
  keyValueHeads: 1,
  layers: 1,
  initializerRange: 0.2,
});
const grammars = {
  answer: {
    start: 0,
    states: [
      { tokens: [3, 4, 5], next: [1, 1, 1] },
      { tokens: [6, 7], next: [0, 2] },
      { tokens: [], next: [] },
    ],
  },
};
export const sampling: SamplingSettings = {
  temperature: 1,
  topK: 0,
  topP: 1,
  maxNewTokens: 6,
  stopTokenIds: [9],
};

export const policyWith = (options: Partial<LocalPolicyOptions> = {}): Promise<LocalPolicy> =>
  LocalPolicy.create({
    model: config,
    seed: 3,
    workers: 1,
    valueHead: true,
    maxSequenceLength: 64,
    maxOpenSequences: 16,
    grammars,
    ...options,
  });

export const settingsWith = (
  loss: Partial<LossSettings> = {},
  optimizer: Partial<UpdateSettings['optimizer']> = {},
) => ({
  loss: { ...DEFAULT_LOSS_SETTINGS, ...loss },
  optimizer: {
    learningRate: 1e-3,
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-8,
    weightDecay: 0.01,
    clipNorm: 1,
    ...optimizer,
  },
  temperature: 1,
});

/** Episodes of one or two turns played by the policy itself, with made-up advantages. */
export async function play(
  policy: LocalPolicy,
  count: number,
  grammar?: string,
): Promise<TrainingSequence[]> {
  return Promise.all(
    Array.from({ length: count }, async (_, n) => {
      const rng = Random.fromSeed(100 + n);
      const tokens: number[] = [];
      const lossMask: number[] = [];
      const logProbs: number[] = [];
      const values: number[] = [];
      for (let turn = 0; turn <= n % 2; turn++) {
        const append = Array.from({ length: 3 + ((n * 5) % 4) }, () => rng.integer(vocabularySize));
        const request = { sequenceId: n, append, sampling, seed: n * 10 + turn };
        const generation = await policy.generate(grammar === undefined ? request : { ...request, grammar });
        tokens.push(...append, ...generation.tokenIds);
        lossMask.push(...append.map(() => 0), ...generation.tokenIds.map(() => 1));
        logProbs.push(...append.map(() => 0), ...generation.logProbs);
        values.push(...append.map(() => 0), ...generation.values!);
      }
      policy.release(n);
      return {
        tokenIds: Int32Array.from(tokens),
        lossMask: Uint8Array.from(lossMask),
        logProbs: Float32Array.from(logProbs),
        advantages: Float32Array.from(tokens, () => rng.normal()),
        returns: Float32Array.from(tokens, () => rng.normal()),
        values: Float32Array.from(values),
        ...(grammar === undefined ? {} : { grammar }),
      };
    }),
  );
}

/** Contents of the files that hold weights and moments. */
export async function weightsOf(policy: LocalPolicy): Promise<Buffer[]> {
  const folder = await mkdtemp(join(tmpdir(), 'ragen-weights-'));
  try {
    await policy.save(folder);
    const files = ['model.safetensors', 'value_head.safetensors', 'optimizer/optimizer.safetensors'];
    return await Promise.all(files.map(name => readFile(join(folder, name))));
  } finally {
    await rm(folder, { recursive: true });
  }
}

export const largestDifference = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Math.max(...Array.from(a, (x, i) => Math.abs(x - b[i])));

/** The policy, to be closed when the test is over. */
export async function closing(
  test: { teardown(run: () => Promise<void>): void },
  created: Promise<LocalPolicy>,
): Promise<LocalPolicy> {
  const policy = await created;
  test.teardown(() => policy.close());
  return policy;
}
