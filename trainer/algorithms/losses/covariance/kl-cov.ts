import { boundedLogRatios, LOG_RATIO_LIMIT, type PolicyLoss } from '../policy-loss.ts';
import { above, atLeast } from '../settings.ts';

/**
 * loss = −A·ρ, + coefficient · |log ρ| for the few tokens with the largest covariance of advantage and log-probability:
 * these use up the entropy. `selectByCovariance` chooses them before each optimizer step. There is no clip. At ρ = 1
 * the penalty has no gradient, so the first step of a batch is plain policy gradient. Source: arXiv 2505.22617; verl
 * `compute_policy_loss_kl_cov`.
 */
export const klCov = {
  name: 'kl_cov',
  kind: 'ratio',
  reads: ['selected'],
  selects: true,
  scalars: { coefficient: ({ klCov: { coefficient } }) => coefficient },
  check({ klCov: { ratio, coefficient } }) {
    above('loss.kl_cov.ratio', ratio, 0);
    if (!(ratio <= 1))
      throw new RangeError(`loss.kl_cov.ratio is ${ratio}; it is a share of the tokens, at most 1`);
    atLeast('loss.kl_cov.coefficient', coefficient, 0);
  },
  tokenLosses(g, input) {
    const logRatios = boundedLogRatios(g, input);
    const surrogate = g.neg(g.mul(input.token('advantages'), g.exp(logRatios)));
    const penalty = g.mul(g.abs(logRatios), input.scalar('policy.coefficient'));
    const selected = g.greater(input.token('selected'), 0.5);
    return {
      losses: g.add(surrogate, g.where(selected, penalty, 0)),
      logRatios,
      clipped: g.greater(logRatios, LOG_RATIO_LIMIT),
    };
  },
} as const satisfies PolicyLoss;
