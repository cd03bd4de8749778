import { mean, positionsBy } from '../statistics.ts';
import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { sampledPositions } from './gae.ts';
import { whitenMasked } from './scaling.ts';

/**
 * REINFORCE++: A_t = reward-to-go R_t = r_t + γ·R′ of each sampled token, whitened over the batch. R′ belongs to the
 * next sampled token, so a turn learns from later turns; `acrossTurns: false` cuts it at every observation token, as
 * verl does. Source: Hu, 2025 (REINFORCE++); verl 0.6.1 `compute_reinforce_plus_plus_outcome_advantage`.
 */
export const reinforcePp: AdvantageEstimator = {
  needs: [],
  estimate(sequences, settings) {
    const returns = sequences.map(sequence => rewardToGo(sequence, settings));
    return { advantages: whitenMasked(returns, sequences, settings), returns };
  },
};

function rewardToGo(
  { lossMask, rewards }: AdvantageSequence,
  { gamma, acrossTurns }: AdvantageSettings,
): Float64Array {
  const returns = new Float64Array(lossMask.length);
  let next = 0;
  for (let t = lossMask.length - 1; t >= 0; t--) {
    if (lossMask[t]) {
      next = rewards[t] + gamma * next;
      returns[t] = next;
    } else if (!acrossTurns) {
      next = 0;
    }
  }
  return returns;
}

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

const SUM_FLOOR = 1e-8;

/**
 * On-policy distillation with weights that favor early tokens: a_t = log π_teacher − log π_rollout on sampled tokens, times
 * w_t = 1 + γ·(1 − Σ_{j<t} |a_j| / Σ|a|), with γ = `earlyWeight`; 0 is plain on-policy distillation. Rewards do not count. Despite the
 * name, the weight is not an importance ratio. With `loss.policy: cispo` and both clips 0 the loss is −w·a·log π_θ.
 *
 * Source: arXiv 2606.22600; TRL `_compute_iw_opd_loss`.
 */
export const iwOpd: AdvantageEstimator = {
  needs: ['logProbs', 'referenceLogProbs'],
  estimate(sequences, { earlyWeight }) {
    const weights: number[] = [];
    const gaps: number[] = [];
    const weighted: number[] = [];
    const advantages = sequences.map(({ lossMask, logProbs, referenceLogProbs }, index) => {
      const gap = Float64Array.from(lossMask, (on, t) => (on ? referenceLogProbs![t] - logProbs![t] : 0));
      const missing = gap.findIndex(value => !Number.isFinite(value));
      if (missing >= 0) {
        throw new RangeError(
          `sequence ${index}: the teacher's log-probability of sampled token ${missing} is ${referenceLogProbs![missing]}; iw_opd needs one for every sampled token`,
        );
      }
      const total = Math.max(
        gap.reduce((sum, value) => sum + Math.abs(value), 0),
        SUM_FLOOR,
      );
      let before = 0;
      return gap.map((value, t) => {
        if (!lossMask[t]) return 0;
        const weight = 1 + earlyWeight * (1 - before / total);
        before += Math.abs(value);
        weights.push(weight);
        gaps.push(value);
        weighted.push(weight * value);
        return weight * value;
      });
    });
    return { advantages, returns: advantages, metrics: summary({ weights, gaps, weighted }) };
  },
};

function summary({
  weights,
  gaps,
  weighted,
}: Readonly<Record<'weights' | 'gaps' | 'weighted', readonly number[]>>): Record<string, number> {
  if (weights.length === 0) return {};
  return {
    'iw_opd/mean_advantage': mean(weighted),
    'iw_opd/mean_abs_advantage': mean(gaps.map(Math.abs)),
    'iw_opd/mean_weight': mean(weights),
    'iw_opd/min_weight': weights.reduce((a, b) => Math.min(a, b)),
    'iw_opd/max_weight': weights.reduce((a, b) => Math.max(a, b)),
  };
}
