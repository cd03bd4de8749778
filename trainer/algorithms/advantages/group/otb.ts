import { positionsBy } from '../../statistics.ts';
import type { AdvantageEstimator, AdvantageSequence } from '../estimator.ts';
import { sampledPositions } from '../gae.ts';

const WEIGHT_FLOOR = 1e-8;

/**
 * Optimal token baseline: A_t = G_t − B_t with B_t = Σ G_t·W_t / (Σ W_t + 1e-8) over the group at the same number of
 * sampled tokens, W_t = Σ_{j≤t} (1 − 2π_j + Σπ²)·w_j², the expected squared norm of the score so far, w the rollout
 * weight. G is the undiscounted reward-to-go. Observation tokens are skipped, so that tokens of equal number are
 * compared. `handleZeroTail` takes no baseline where only the longest sequence is left: its own return would cancel it.
 * A deterministic policy has W = 0 and so A = G. W and B include the sequence's own action and return, so the estimate
 * is biased by O(1/n). Source: verl `compute_multi_turn_optimal_token_baseline_advantage`; its one-turn form counts
 * columns instead of tokens.
 */
export const otb: AdvantageEstimator = {
  needs: ['groups', 'logProbs', 'squaredProbabilities'],
  estimate(sequences, { handleZeroTail }) {
    const dense = sequences.map(tokensOf);
    const advantages = sequences.map(({ lossMask }) => new Float64Array(lossMask.length));
    const returns = sequences.map(({ lossMask }) => new Float64Array(lossMask.length));
    for (const members of positionsBy(sequences, ({ groupId }) => groupId).values()) {
      const lengths = members.map(position => dense[position].positions.length).toSorted((a, b) => b - a);
      const last = handleZeroTail && members.length > 1 ? lengths[1] : lengths[0];
      for (let k = 0; k < lengths[0]; k++) {
        let [weights, products] = [WEIGHT_FLOOR, 0];
        for (const position of members) {
          const { positions, weight, toGo } = dense[position];
          if (k >= positions.length) continue;
          weights += weight[k];
          products += weight[k] * toGo[k];
        }
        const baseline = members.length > 1 && k < last ? products / weights : 0;
        for (const position of members) {
          const { positions, toGo } = dense[position];
          if (k >= positions.length) continue;
          advantages[position][positions[k]] = toGo[k] - baseline;
          returns[position][positions[k]] = toGo[k];
        }
      }
    }
    return { advantages, returns };
  },
};

interface Tokens {
  /** Positions of the sampled tokens in the sequence. */
  readonly positions: readonly number[];
  /** W and G at each of them. */
  readonly weight: Float64Array;
  readonly toGo: Float64Array;
}

function tokensOf(sequence: AdvantageSequence): Tokens {
  const { lossMask, rewards, logProbs, squaredProbabilities, rolloutWeights } = sequence;
  const positions = sampledPositions(lossMask);
  const weight = new Float64Array(positions.length);
  let sum = 0;
  positions.forEach((t, k) => {
    const own = rolloutWeights?.[t] ?? 1;
    sum += (1 - 2 * Math.exp(logProbs![t]) + squaredProbabilities![t]) * own * own;
    weight[k] = sum;
  });
  const toGo = new Float64Array(positions.length);
  let total = 0;
  for (let t = lossMask.length - 1, k = positions.length - 1; t >= 0; t--) {
    total += rewards[t];
    if (lossMask[t]) toGo[k--] = total;
  }
  return { positions, weight, toGo };
}
