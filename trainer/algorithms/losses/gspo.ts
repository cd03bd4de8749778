import {
  type ClipSettings,
  clippedSurrogate,
  emptyOutput,
  type PolicyLossInput,
  type PolicyLossOutput,
} from './policy-loss.ts';

/** The sequence's log-ratio is clamped from above (verl 0.6.1). */
export const SEQUENCE_LOG_RATIO_LIMIT = 10;

/**
 * Group sequence policy optimisation: one ratio per sequence, its geometric mean, clipped like PPO's.
 *
 * s = exp(mean over trained tokens of log π_θ − log π_old); each token's loss is max(−A·s, −A·clip(s)), and its
 * gradient flows through s·π_θ,t / stop_gradient(π_θ,t), so a sequence moves all of its tokens alike. There is no
 * dual clip. Aggregate with `seq_mean_token_mean`.
 *
 * Source: Zheng et al., 2025 (equations of GSPO-token); verl 0.6.1 `compute_policy_loss_gspo`.
 */
export function gspoLoss(input: PolicyLossInput, settings: ClipSettings): PolicyLossOutput {
  const { mask, advantages } = input;
  const output = emptyOutput(mask.length);
  const logRatio = meanLogRatio(input);
  const ratio = Math.exp(Math.min(logRatio, SEQUENCE_LOG_RATIO_LIMIT));
  for (let t = 0; t < mask.length; t++) {
    if (!mask[t]) continue;
    const token = clippedSurrogate(ratio, advantages[t], { ...settings, dualClip: 0 });
    output.losses[t] = token.loss;
    const flat = token.clipped || logRatio > SEQUENCE_LOG_RATIO_LIMIT;
    output.derivatives[t] = flat ? 0 : -advantages[t] * ratio;
    output.clipped[t] = token.clipped ? 1 : 0;
  }
  return output;
}

/** Mean of log π_θ − log π_old over the trained tokens; 0 when there are none. */
export function meanLogRatio(input: Pick<PolicyLossInput, 'mask' | 'logProbs' | 'oldLogProbs'>): number {
  const { mask, logProbs, oldLogProbs } = input;
  let sum = 0;
  let count = 0;
  for (let t = 0; t < mask.length; t++) {
    if (!mask[t]) continue;
    sum += logProbs[t] - oldLogProbs[t];
    count++;
  }
  return count === 0 ? 0 : sum / count;
}
