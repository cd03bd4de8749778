import { Random } from '../../shared/random.ts';
import { DEFAULT_LOSS_SETTINGS } from '../../trainer/algorithms/losses/settings.ts';
import type { TrainingSequence } from '../../trainer/algorithms/training-sequence.ts';
import type { LocalPolicy } from '../../trainer/policy/local-policy.ts';
import type { UpdateSettings } from '../../trainer/policy/policy.ts';
import type { Shape } from './shapes.ts';

const SETTINGS: UpdateSettings = {
  loss: { ...DEFAULT_LOSS_SETTINGS, policy: 'cross_entropy', entropyCoefficient: 0 },
  optimizer: { learningRate: 1e-4, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weightDecay: 0.01, clipNorm: 1 },
  temperature: 1,
};

/** Members of a group, tokens of the prompt that they have in common, and tokens that each samples. */
export const GROUP = { members: 16, prompt: 256, generated: 8 } as const;

/** One optimizer step on random sequences. */
export async function trainOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(1);
  const length = shape.time + 1;
  const sequences = Array.from({ length: shape.batch }, (): TrainingSequence => {
    const lossMask = new Uint8Array(length).fill(1);
    lossMask[0] = 0;
    return {
      tokenIds: Int32Array.from({ length }, () => rng.integer(shape.vocabulary)),
      lossMask: lossMask,
      logProbs: new Float32Array(length),
      advantages: new Float32Array(length),
    };
  });
  await policy.update({ sequences }, SETTINGS);
}

/** A batch of random prompts, all different, and their continuations. */
export async function decodeOnce(policy: LocalPolicy, shape: Shape): Promise<void> {
  const rng = Random.fromSeed(2);
  const prompts = Array.from({ length: shape.batch }, () => randomTokens(rng, shape.prompt, shape));
  await continueAll(policy, prompts, shape.generated);
}

/** A group behind one prompt, or as many sequences behind separate prompts. */
export async function groupOnce(policy: LocalPolicy, shape: Shape, common: boolean): Promise<void> {
  const rng = Random.fromSeed(3);
  const first = randomTokens(rng, GROUP.prompt, shape);
  const prompts = Array.from({ length: GROUP.members }, () =>
    common ? first : randomTokens(rng, GROUP.prompt, shape),
  );
  await continueAll(policy, prompts, GROUP.generated);
}

async function continueAll(
  policy: LocalPolicy,
  prompts: readonly Int32Array[],
  maxNewTokens: number,
): Promise<void> {
  const sampling = { temperature: 1, topK: 0, topP: 1, maxNewTokens, stopTokenIds: [] };
  await Promise.all(
    prompts.map((append, sequenceId) => policy.generate({ sequenceId, append, sampling, seed: sequenceId })),
  );
  for (const sequenceId of prompts.keys()) policy.release(sequenceId);
}

function randomTokens(rng: Random, length: number, shape: Shape): Int32Array {
  return Int32Array.from({ length }, () => rng.integer(shape.vocabulary));
}
