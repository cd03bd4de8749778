import {
  type ClipSettings,
  clampLogRatio,
  emptyOutput,
  type PolicyLossInput,
  type PolicyLossOutput,
} from './policy-loss.ts';

/**
 * CISPO clips the importance weight instead of the update, so that every token keeps a gradient.
 *
 * loss = −stop_gradient(clip(ρ, 1 − ε_low, 1 + ε_high)) · A · log π_θ. Its value means nothing, its gradient does.
 *
 * Source: MiniMax-M1, 2025.
 */
export function cispoLoss(input: PolicyLossInput, settings: ClipSettings): PolicyLossOutput {
  const { mask, logProbs, oldLogProbs, advantages } = input;
  const output = emptyOutput(mask.length);
  for (let t = 0; t < mask.length; t++) {
    if (!mask[t]) continue;
    const ratio = Math.exp(clampLogRatio(logProbs[t] - oldLogProbs[t]));
    const weight = Math.min(Math.max(ratio, 1 - settings.clipLow), 1 + settings.clipHigh);
    output.losses[t] = -weight * advantages[t] * logProbs[t];
    output.derivatives[t] = -weight * advantages[t];
    output.clipped[t] = weight === ratio ? 0 : 1;
  }
  return output;
}
