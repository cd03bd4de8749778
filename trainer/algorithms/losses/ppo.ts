import {
  type ClipSettings,
  clampLogRatio,
  clippedSurrogate,
  emptyOutput,
  LOG_RATIO_LIMIT,
  type PolicyLossInput,
  type PolicyLossOutput,
} from './policy-loss.ts';

/**
 * Proximal policy optimisation with separate clip ranges and the dual clip.
 *
 * loss = max(−A·ρ, −A·clip(ρ, 1 − ε_low, 1 + ε_high)), and for A < 0 no more than −c·A; ρ = π_θ / π_old.
 *
 * Sources: Schulman et al., 2017; Yu et al., 2025 (clip-higher); Ye et al., 2020 (dual clip);
 * verl 0.6.1 `compute_policy_loss_vanilla`.
 */
export function ppoLoss(input: PolicyLossInput, settings: ClipSettings): PolicyLossOutput {
  const { mask, logProbs, oldLogProbs, advantages } = input;
  const output = emptyOutput(mask.length);
  for (let t = 0; t < mask.length; t++) {
    if (!mask[t]) continue;
    const logRatio = logProbs[t] - oldLogProbs[t];
    const ratio = Math.exp(clampLogRatio(logRatio));
    const token = clippedSurrogate(ratio, advantages[t], settings);
    output.losses[t] = token.loss;
    const flat = token.clipped || token.clippedLower || Math.abs(logRatio) > LOG_RATIO_LIMIT;
    output.derivatives[t] = flat ? 0 : -advantages[t] * ratio;
    output.clipped[t] = token.clipped ? 1 : 0;
    output.clippedLower[t] = token.clippedLower ? 1 : 0;
  }
  return output;
}
