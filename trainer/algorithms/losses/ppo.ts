import type { GraphBuilder } from '../../tensor/graph/graph.ts';
import {
  boundedLogRatios,
  clippedSurrogate,
  clipRatio,
  LOG_RATIO_LIMIT,
  type PolicyLoss,
  type PolicyLossInput,
  type TokenLosses,
  type TokenMetric,
} from './policy-loss.ts';
import { requireAggregation } from './settings.ts';

/**
 * Proximal policy optimization with separate clip ranges and the dual clip.
 *
 * loss = max(−A·ρ, −A·clip(ρ, 1 − ε_low, 1 + ε_high)), and for A < 0 no more than −c·A; ρ = π_θ / π_old.
 *
 * Sources: Schulman et al., 2017; Yu et al., 2025 (clip-higher); Ye et al., 2020 (dual clip);
 * verl 0.6.1 `compute_policy_loss_vanilla`.
 */
export const ppo = { name: 'ppo', kind: 'ratio', tokenLosses } as const satisfies PolicyLoss;

/**
 * PPO around π_prox, the weights at the start of the update. The weight π_prox / π_behave comes with the loss inputs.
 *
 * Source: AReaL (Fu et al., 2025).
 */
export const decoupledPpo = {
  ...ppo,
  name: 'decoupled_ppo',
  needsProximal: true,
} as const satisfies PolicyLoss;

function tokenLosses(g: GraphBuilder, input: PolicyLossInput): TokenLosses {
  const logRatios = boundedLogRatios(g, input);
  const surrogate = clippedSurrogate(g, input, g.exp(logRatios));
  if (!input.dualClip) return { ...surrogate, logRatios };
  const advantages = input.token('advantages');
  const ceiling = g.neg(g.mul(advantages, input.scalar('dualClip')));
  const clippedLower = g.and(g.less(advantages, 0), g.greater(surrogate.losses, ceiling));
  const losses = g.where(clippedLower, ceiling, surrogate.losses);
  return { losses, logRatios, clipped: surrogate.clipped, clippedLower };
}

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
