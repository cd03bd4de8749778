import { clampLogRatio } from './policy-loss.ts';
import type { OffPolicySettings } from './settings.ts';

export interface OffPolicyInput {
  readonly lossMask: ArrayLike<number>;
  /** log π_prox: the weights at the start of the update. */
  readonly proximalLogProbs: ArrayLike<number>;
  /** log π_behave: the weights each token was sampled under. */
  readonly behaviorLogProbs: ArrayLike<number>;
}

/**
 * Weight of each token's policy loss for data sampled by an older policy, w = π_prox / π_behave. A constant of
 * the update: no gradient flows through it. Masked entries are 0.
 *
 * | kind | weight | source |
 * |---|---|---|
 * | `none` | w | AReaL (Fu et al., 2025), decoupled PPO |
 * | `tis` | min(w, cap) | truncated importance sampling (Yao et al., 2025) |
 * | `sequence_tis` | min(Π w over the sequence, cap), for all its tokens | verl, `rollout_is_level: sequence` |
 * | `icepop` | w where low ≤ w ≤ high, else 0 | IcePop (Ring-1T, 2025) |
 * | `geometric_mask` | w, but 0 for the whole sequence if its geometric mean leaves low … high | verl, sequence rejection |
 *
 * Tokens weighed 0 still count in the averages, so that counts stay known before the update.
 */
export function offPolicyWeights(input: OffPolicyInput, settings: OffPolicySettings): Float64Array {
  const { lossMask, proximalLogProbs, behaviorLogProbs } = input;
  const weights = new Float64Array(lossMask.length);
  let logSum = 0;
  let count = 0;
  for (let t = 0; t < lossMask.length; t++) {
    if (!lossMask[t]) continue;
    const logRatio = clampLogRatio(proximalLogProbs[t] - behaviorLogProbs[t]);
    weights[t] = tokenWeight(Math.exp(logRatio), settings);
    logSum += logRatio;
    count++;
  }
  if (settings.kind === 'sequence_tis') {
    const weight = Math.min(Math.exp(clampLogRatio(logSum)), settings.cap);
    for (let t = 0; t < lossMask.length; t++) if (lossMask[t]) weights[t] = weight;
  }
  if (settings.kind === 'geometric_mask' && count > 0) {
    const mean = Math.exp(logSum / count);
    if (mean < settings.low || mean > settings.high) weights.fill(0);
  }
  return weights;
}

function tokenWeight(ratio: number, settings: OffPolicySettings): number {
  if (settings.kind === 'tis') return Math.min(ratio, settings.cap);
  if (settings.kind === 'icepop') return ratio >= settings.low && ratio <= settings.high ? ratio : 0;
  return ratio;
}
