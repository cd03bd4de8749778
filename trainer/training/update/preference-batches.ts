import { Random } from '../../../shared/random.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { Policy, Score } from '../../policy/policy.ts';

type Pair = readonly [chosen: TrainingSequence, rejected: TrainingSequence];

/** Sequences in pairs, chosen before rejected, in another order; pairs stay together. */
export function shuffledPairs(sequences: readonly TrainingSequence[], seed: number): Pair[] {
  const pairs = Array.from(
    { length: sequences.length / 2 },
    (_, i): Pair => [sequences[2 * i], sequences[2 * i + 1]],
  );
  return Random.fromSeed(seed).shuffle(pairs);
}

/** Sequences of pairs with what a preference loss needs to know of their partners under the weights as they are. */
export async function withPartners(
  policy: Pick<Policy, 'score'>,
  pairs: readonly Pair[],
  temperature: number,
): Promise<TrainingSequence[]> {
  const sequences = pairs.flat();
  const scores = await scoreSequences(policy, sequences, temperature);
  const ratios = sequences.map(({ lossMask, referenceLogProbs }, i) => {
    let sum = 0;
    for (let t = 0; t < lossMask.length; t++)
      if (lossMask[t]) sum += scores[i].logProbs[t] - referenceLogProbs![t];
    return sum;
  });
  return sequences.map((sequence, i) => ({
    ...sequence,
    // The partner stands next to it: 0 and 1, 2 and 3, …
    preference: { chosen: i % 2 === 0, partnerLogRatio: ratios[i ^ 1] },
  }));
}

/** Scores the trained tokens of sequences under the weights as they are. */
export function scoreSequences(
  policy: Pick<Policy, 'score'>,
  sequences: readonly TrainingSequence[],
  temperature: number,
): Promise<Score[]> {
  const requests = sequences.map(({ tokenIds, lossMask, grammar }) => ({
    tokenIds,
    lossMask,
    ...(grammar === undefined ? {} : { grammar }),
  }));
  return policy.score(requests, { temperature });
}
