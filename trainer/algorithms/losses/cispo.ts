import { boundedLogRatios, clipRatio, type PolicyLoss, type TokenMetric } from './policy-loss.ts';

/**
 * CISPO clips the importance weight instead of the update, so that every token keeps a gradient.
 *
 * loss = −stop_gradient(clip(ρ, 1 − ε_low, 1 + ε_high)) · A · log π_θ. Its value means nothing, its gradient does.
 *
 * Source: MiniMax-M1, 2025.
 */
export const cispo = {
  name: 'cispo',
  kind: 'ratio',
  tokenLosses(g, input) {
    const logRatios = boundedLogRatios(g, input);
    const ratio = g.stopGradient(g.exp(logRatios));
    const weight = clipRatio(g, input, ratio);
    const losses = g.neg(g.mul(g.mul(weight, input.token('advantages')), input.logProbs));
    return {
      losses,
      logRatios,
      clipped: g.not(g.equal(weight, ratio)),
      tokenMetrics: new Map<string, TokenMetric>([
        ['actor/ratio_mean', { value: ratio, by: 'mean' }],
        ['actor/ratio_min', { value: ratio, by: 'min' }],
        ['actor/ratio_max', { value: ratio, by: 'max' }],
        ['actor/clipped_ratio_mean', { value: weight, by: 'mean' }],
      ]),
    };
  },
} as const satisfies PolicyLoss;
