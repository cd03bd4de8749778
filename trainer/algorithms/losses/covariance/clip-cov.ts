import { boundedLogRatios, clippedSurrogate, type PolicyLoss } from '../policy-loss.ts';
import { above } from '../settings.ts';

/**
 * PPO's clip, and no loss at all for a few random tokens with a large covariance of advantage and log-probability:
 * these use up the entropy. `selectByCovariance` chooses them before each optimizer step. There is no dual clip.
 * Source: arXiv 2505.22617; verl `compute_policy_loss_clip_cov`.
 */
export const clipCov = {
  name: 'clip_cov',
  kind: 'ratio',
  reads: ['selected'],
  selects: true,
  check({ clipCov: { ratio, low, high } }) {
    above('loss.clip_cov.ratio', ratio, 0);
    if (!(ratio <= 1))
      throw new RangeError(`loss.clip_cov.ratio is ${ratio}; it is a share of the tokens, at most 1`);
    if (!(low < high)) {
      throw new RangeError(`loss.clip_cov.low … high is ${low} … ${high}; it must be low < high`);
    }
  },
  tokenLosses(g, input) {
    const logRatios = boundedLogRatios(g, input);
    const { losses, clipped } = clippedSurrogate(g, input, g.exp(logRatios));
    return { losses: g.where(g.greater(input.token('selected'), 0.5), 0, losses), logRatios, clipped };
  },
} as const satisfies PolicyLoss;
