import { boundedLogRatios, LOG_RATIO_LIMIT, type PolicyLoss, type TokenMetric } from '../policy-loss.ts';

/**
 * Direct reward optimization: a quadratic penalty replaces the ratio, so stale samples add no variance and get no correction.
 *
 * loss = −(A·log π_θ − ½β·(log π_θ − log π_old)²), gradient −A + β·(log π_θ − log π_old). There is no clip and no limit: it has no
 * exponential.
 *
 * Source: Richemond et al., 2024; verl `compute_policy_loss_dro`.
 */
export const dro = {
  name: 'dro',
  kind: 'ratio',
  scalars: { beta: ({ dro: { beta } }) => beta ?? 0 },
  check({ dro: { beta } }) {
    if (beta === null || !(beta > 0)) {
      throw new RangeError(`loss.dro.beta is ${beta}; dro needs it above 0, and it has no default`);
    }
  },
  tokenLosses(g, input) {
    const { logProbs, token, scalar } = input;
    const move = g.sub(logProbs, token('oldLogProbs'));
    const square = g.mul(move, move);
    const gain = g.mul(token('advantages'), logProbs);
    const logRatios = boundedLogRatios(g, input);
    return {
      losses: g.sub(g.mul(g.mul(square, scalar('policy.beta')), 0.5), gain),
      logRatios,
      clipped: g.greater(logRatios, LOG_RATIO_LIMIT),
      tokenMetrics: new Map<string, TokenMetric>([
        ['actor/log_ratio_mean', { value: g.stopGradient(move), by: 'mean' }],
        ['actor/log_ratio_square', { value: g.stopGradient(square), by: 'mean' }],
      ]),
    };
  },
} as const satisfies PolicyLoss;
