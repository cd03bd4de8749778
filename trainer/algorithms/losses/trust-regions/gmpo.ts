import { boundedLogRatios, LOG_RATIO_LIMIT, type PolicyLoss, type TokenMetric } from '../policy-loss.ts';
import { atLeast, requireAggregation } from '../settings.ts';

/**
 * Geometric-mean policy optimization: log-ratios are clipped token by token and then averaged, so no single token decides.
 *
 * x = min(d, high) where A > 0, max(d, −low) where A < 0, d = log π_θ − log π_old; R = exp(mean of x over the sequence's tokens);
 * loss = −A · R, averaged over sequences that have tokens. Limits are of logarithms: 0.4 allows ratios of e^±0.4.
 *
 * Each token has the loss of its sequence and the gradient through its x. Compare `gspo`, which clips after the mean.
 *
 * Source: arXiv 2507.20673; TRL `GMPOTrainer`, verl `compute_policy_loss_geo_mean`, which also counts sequences without tokens.
 */
export const gmpo = {
  name: 'gmpo',
  kind: 'ratio',
  reads: ['meanWeights'],
  sequenceLevel: true,
  scalars: { low: ({ gmpo: { low } }) => low, high: ({ gmpo: { high } }) => high },
  check({ aggregation, gmpo: { low, high } }) {
    atLeast('loss.gmpo.low', low, 0);
    atLeast('loss.gmpo.high', high, 0);
    requireAggregation('gmpo', aggregation, 'seq_mean_token_mean', 'has one ratio per sequence');
  },
  tokenLosses(g, input) {
    const { logProbs, token, scalar } = input;
    const advantages = token('advantages');
    const [rises, falls] = [g.greater(advantages, 0), g.less(advantages, 0)];
    const d = g.sub(logProbs, token('oldLogProbs'));
    const upper = g.minimum(d, scalar('policy.high'));
    const lower = g.maximum(d, g.neg(scalar('policy.low')));
    const x = g.stopGradient(g.where(rises, upper, g.where(falls, lower, 0)));
    const mean = input.sequenceSum(g.mul(x, token('meanWeights')));
    const ratio = g.exp(g.clip(g.stopGradient(mean), -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT));
    const high = g.and(rises, g.greater(d, scalar('policy.high')));
    const low = g.and(falls, g.less(d, g.neg(scalar('policy.low'))));
    const clipped = g.or(high, low);
    const own = g.where(clipped, 0, g.sub(logProbs, g.stopGradient(logProbs)));
    const flag = (condition: typeof high) => g.where(condition, 1, 0);
    return {
      losses: g.neg(g.mul(g.mul(advantages, ratio), g.add(own, 1))),
      logRatios: boundedLogRatios(g, input),
      clipped,
      tokenMetrics: new Map<string, TokenMetric>([
        ['actor/clip_high_frac', { value: flag(high), by: 'mean' }],
        ['actor/clip_low_frac', { value: flag(low), by: 'mean' }],
      ]),
    };
  },
} as const satisfies PolicyLoss;
