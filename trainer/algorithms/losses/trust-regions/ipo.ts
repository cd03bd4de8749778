import { boundedLogRatios, type PolicyLoss } from '../policy-loss.ts';
import { atLeast } from '../settings.ts';
import { anchorPenalty, trustRegionMetrics } from './dppo.ts';

/**
 * A symmetric trust region of the token's probability: loss = −A·ρ where |π_θ − π_anchor| ≤ threshold, else 0, for either sign of A;
 * + τ · (log π_θ − log π_anchor)² everywhere. A token that left the region returns by the quadratic term alone.
 *
 * It is not a relative of the IPO of preference learning. Source: prime-rl `ipo_loss_fn`.
 */
export const ipo = {
  name: 'ipo',
  kind: 'ratio',
  scalars: { threshold: ({ ipo: { threshold } }) => threshold, klTau: ({ ipo: { klTau } }) => klTau },
  check({ ipo: { threshold, klTau } }) {
    atLeast('loss.ipo.threshold', threshold, 0);
    atLeast('loss.ipo.kl_tau', klTau, 0);
  },
  tokenLosses(g, input) {
    const { logProbs, token, scalar } = input;
    const move = g.abs(g.sub(g.exp(g.stopGradient(logProbs)), g.exp(token('oldLogProbs'))));
    const dropped = g.greater(move, scalar('policy.threshold'));
    const logRatios = boundedLogRatios(g, input);
    const ratio = g.exp(logRatios);
    const surrogate = g.neg(g.mul(token('advantages'), ratio));
    return {
      losses: g.add(g.where(dropped, 0, surrogate), anchorPenalty(g, input)),
      logRatios,
      ...trustRegionMetrics(g, input, { dropped, ratio: g.stopGradient(ratio), logRatios }),
    };
  },
} as const satisfies PolicyLoss;
