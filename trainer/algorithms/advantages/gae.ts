import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { episodeKey } from './groups.ts';
import { turnEnds } from './turns.ts';
import { whiten } from './whiten.ts';

/**
 * Generalized advantage estimation (Schulman et al., 2016) over sampled tokens.
 *
 * δ_t = r_t + γ·V′ − V_t and A_t = δ_t + γ·λ·A′, where V′ and A′ belong to the next *sampled* token: masked tokens
 * are stepped over, their entries hold A′ unchanged. R = A + V. Advantages are whitened over the batch.
 *
 * With `turnLambda`, λ applies within a turn and turnLambda from a turn's last token to the next turn (long
 * responses then do not discount the trace, turns do).
 *
 * After the last token V′ is `bootstrapValue`, and A′ is 0 (Pardo et al., 2018: time limits). With `acrossSamples` the
 * sequences cut from one episode are steps of one chain, in their order.
 *
 * Source: verl 0.6.1 `compute_gae_advantage_return`.
 */
export const gae: AdvantageEstimator = {
  needs: ['values'],
  estimate(sequences, settings) {
    const advantages: Float64Array[] = [];
    for (const chain of chains(sequences, settings)) {
      const found = chainAdvantages(
        chain.map(i => sequences[i]),
        settings,
      );
      for (const [k, i] of chain.entries()) advantages[i] = found[k];
    }
    const returns = advantages.map((array, i) => array.map((a, t) => a + sequences[i].values![t]));
    return { advantages: whiten(advantages, sequences, settings), returns };
  },
};

/** Indices of the sequences that follow each other: those of one episode, or each alone. */
function chains(
  sequences: readonly AdvantageSequence[],
  { acrossSamples }: AdvantageSettings,
): Iterable<readonly number[]> {
  if (!acrossSamples) return sequences.map((_, i) => [i]);
  return Map.groupBy(sequences.keys(), i => episodeKey(sequences[i], i)).values();
}

/** Advantages of sequences that follow each other. */
function chainAdvantages(chain: readonly AdvantageSequence[], settings: AdvantageSettings): Float64Array[] {
  const { gamma, lambda, turnLambda = lambda } = settings;
  const steps = chain.flatMap(sequence => {
    const { lossMask, rewards, values } = sequence;
    const ends = turnLambda === lambda ? new Set<number>() : new Set(turnEnds(sequence));
    return sampledPositions(lossMask).map(t => ({
      reward: rewards[t],
      value: values![t],
      lambda: ends.has(t) ? turnLambda : lambda,
    }));
  });
  const own = advantagesOver({
    rewards: steps.map(({ reward }) => reward),
    values: steps.map(({ value }) => value),
    gamma,
    lambdas: steps.map(({ lambda }) => lambda),
    bootstrapValue: chain.at(-1)!.bootstrapValue,
  });
  let next = 0;
  return chain.map(({ lossMask }) => {
    const advantages = new Float64Array(lossMask.length);
    for (let t = 0; t < lossMask.length; t++) {
      advantages[t] = own[next] ?? 0;
      if (lossMask[t]) next++;
    }
    return advantages;
  });
}

/** Steps of one sequence in order, arrays of equal length. */
export interface GaeSteps {
  readonly rewards: readonly number[];
  readonly values: readonly number[];
  readonly gamma: number;
  /** λ from each step to the next. */
  readonly lambdas: readonly number[];
  /** Steps that end an episode: the next value counts as 0. Absent: only the last step may be one. */
  readonly ends?: readonly boolean[];
  /** Value of what follows the last step; 0 when absent. */
  readonly bootstrapValue?: number;
}

/** A_k = δ_k + γ·λ_k·A_(k+1) with δ_k = r_k + γ·V_(k+1) − V_k, from the last step to the first. */
export function advantagesOver({
  rewards,
  values,
  gamma,
  lambdas,
  ends,
  bootstrapValue = 0,
}: GaeSteps): Float64Array {
  const advantages = new Float64Array(rewards.length);
  let nextValue = bootstrapValue;
  let next = 0;
  for (let k = rewards.length - 1; k >= 0; k--) {
    if (ends?.[k]) [nextValue, next] = [0, 0];
    const delta = rewards[k] + gamma * nextValue - values[k];
    next = delta + gamma * lambdas[k] * next;
    nextValue = values[k];
    advantages[k] = next;
  }
  return advantages;
}

export function sampledPositions(lossMask: ArrayLike<number>): number[] {
  return Array.from(lossMask, (on, t) => (on ? t : -1)).filter(t => t >= 0);
}
