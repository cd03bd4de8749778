import type { AdvantageEstimator, AdvantageSequence, AdvantageSettings } from './estimator.ts';
import { whitenMasked } from './whiten.ts';

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
