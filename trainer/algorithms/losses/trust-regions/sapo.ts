import { boundedLogRatios, LOG_RATIO_LIMIT, type PolicyLoss, type TokenMetric } from '../policy-loss.ts';
import { above, requireAggregation } from '../settings.ts';

/**
 * Soft adaptive policy optimization: a sigmoid around ρ = 1 replaces the clip, so the gradient fades instead of ending.
 *
 * loss = −A · (4/τ) · σ(τ·(ρ − 1)), τ = τ_pos where A > 0, else τ_neg. The gradient is −A · 4σ(1 − σ) · ρ: −A at ρ = 1. The value is
 * −2A/τ there, so the loss is not 0 on policy.
 *
 * Source: arXiv 2511.20347; verl `compute_policy_loss_sapo`, which always averages by sequences.
 */
export const sapo = {
  name: 'sapo',
  kind: 'ratio',
  scalars: { tauPositive: ({ sapo: { tauPos } }) => tauPos, tauNegative: ({ sapo: { tauNeg } }) => tauNeg },
  check({ aggregation, sapo: { tauPos, tauNeg } }) {
    above('loss.sapo.tau_pos', tauPos, 0);
    above('loss.sapo.tau_neg', tauNeg, 0);
    requireAggregation('sapo', aggregation, 'seq_mean_token_mean', 'is defined as a mean over sequences');
  },
  tokenLosses(g, input) {
    const advantages = input.token('advantages');
    const rises = g.greater(advantages, 0);
    const tau = g.where(rises, input.scalar('policy.tauPositive'), input.scalar('policy.tauNegative'));
    const logRatios = boundedLogRatios(g, input);
    const ratio = g.exp(logRatios);
    const gate = g.sigmoid(g.mul(tau, g.sub(ratio, 1)));
    const held = g.stopGradient(gate);
    const weight = g.mul(g.mul(held, g.sub(1, held)), 4);
    const value = g.stopGradient(ratio);
    return {
      losses: g.neg(g.mul(g.mul(advantages, g.div(4, tau)), gate)),
      logRatios,
      clipped: g.greater(logRatios, LOG_RATIO_LIMIT),
      tokenMetrics: new Map<string, TokenMetric>([
        ['actor/gate_positive', { value: weight, where: rises, by: 'mean' }],
        ['actor/gate_negative', { value: weight, where: g.less(advantages, 0), by: 'mean' }],
        ['actor/ratio_mean', { value, by: 'mean' }],
        ['actor/ratio_min', { value, by: 'min' }],
        ['actor/ratio_max', { value, by: 'max' }],
      ]),
    };
  },
} as const satisfies PolicyLoss;
