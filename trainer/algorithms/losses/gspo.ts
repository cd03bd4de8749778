import { clippedSurrogate, LOG_RATIO_LIMIT, type PolicyLoss } from './policy-loss.ts';
import { requireAggregation } from './settings.ts';

/** The sequence's log-ratio is clamped from above (verl 0.6.1). */
export const SEQUENCE_LOG_RATIO_LIMIT = 10;

/**
 * Group sequence policy optimization: one ratio per sequence, its geometric mean, clipped like PPO's.
 *
 * s = exp(mean over trained tokens of log π_θ − log π_old); each token's loss is max(−A·s, −A·clip(s)), and its
 * gradient flows through s·π_θ,t / stop_gradient(π_θ,t), so a sequence moves all of its tokens alike. There is no
 * dual clip. Aggregate with `seq_mean_token_mean`.
 *
 * Source: Zheng et al., 2025 (equations of GSPO-token); verl 0.6.1 `compute_policy_loss_gspo`.
 */
export const gspo = {
  name: 'gspo',
  kind: 'ratio',
  reads: ['meanWeights'],
  check({ aggregation }) {
    const why = 'has one ratio per sequence and weighs sequences alike';
    requireAggregation('gspo', aggregation, 'seq_mean_token_mean', why);
  },
  tokenLosses(g, input) {
    const { logProbs } = input;
    const difference = g.sub(logProbs, input.token('oldLogProbs'));
    const mean = input.sequenceSum(g.mul(difference, input.token('meanWeights')));
    const ownGradient = g.sub(logProbs, g.stopGradient(logProbs));
    const logSequenceRatio = g.add(ownGradient, g.stopGradient(mean));
    const ratio = g.exp(g.minimum(logSequenceRatio, SEQUENCE_LOG_RATIO_LIMIT));
    const logRatios = g.clip(difference, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT);
    return { ...clippedSurrogate(g, input, ratio), logRatios };
  },
} as const satisfies PolicyLoss;
