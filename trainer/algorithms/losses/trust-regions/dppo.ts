import type { GraphBuilder, Tensor } from '../../../tensor/graph/graph.ts';
import {
  boundedLogRatios,
  type PolicyLoss,
  type PolicyLossInput,
  type TokenLosses,
  type TokenMetric,
} from '../policy-loss.ts';
import { atLeast, type DppoSettings } from '../settings.ts';

/** Keeps the logarithms of the binary KL finite where a probability is 1 (verl). */
const COMPLEMENT_FLOOR = 1e-8;

/**
 * Divergence proximal policy optimization: a limit on the change of the token's own probability replaces the clip of the ratio, so
 * rare tokens may change by a large factor and likely ones may not move far.
 *
 * With p = π_θ and a = π_anchor of the token, it is kept where the divergence of (p, 1 − p) from (a, 1 − a) is within the limit of
 * its direction, or where the update moves it back:
 *
 * - `tv`: A > 0 and p − a ≤ high, or A ≤ 0 and p − a ≥ −low
 * - `kl`: A > 0 and (k ≤ high or p ≤ a), or A ≤ 0 and (k ≤ low or p ≥ a), k = KL(a ‖ p) over the two outcomes
 *
 * loss = −A · stop_gradient(min(ρ, cap)) · log π_θ where kept, else 0; + τ · (log π_θ − log π_anchor)² everywhere.
 *
 * Source: arXiv 2602.04879; verl `compute_policy_loss_dppo_tv` and `_kl`, with the same value; prime-rl `default_loss_fn`, which has
 * the quadratic term and the same gradient without a cap.
 */
export const dppo = {
  name: 'dppo',
  kind: 'ratio',
  scalars: {
    low: ({ dppo: settings }) => dppoLimits(settings).low,
    high: ({ dppo: settings }) => dppoLimits(settings).high,
    ratioCap: ({ dppo: settings }) => settings.ratioCap,
    klTau: ({ dppo: settings }) => settings.klTau,
  },
  variant: ({ dppo: { divergence } }) => divergence,
  check({ dppo: settings }) {
    const { low, high } = dppoLimits(settings);
    atLeast('loss.dppo.low', low, 0);
    atLeast('loss.dppo.high', high, 0);
    atLeast('loss.dppo.ratio_cap', settings.ratioCap, 1);
    atLeast('loss.dppo.kl_tau', settings.klTau, 0);
  },
  tokenLosses(g, input) {
    const { logProbs, token, scalar, variant } = input;
    const p = g.exp(g.stopGradient(logProbs));
    const anchor = g.exp(token('oldLogProbs'));
    const distance =
      variant === 'kl'
        ? binaryKl(g, g.stopGradient(logProbs), token('oldLogProbs'))
        : g.abs(g.sub(p, anchor));
    const rises = g.greater(token('advantages'), 0);
    const limit = g.where(rises, scalar('policy.high'), scalar('policy.low'));
    const away = g.or(g.and(rises, g.greater(p, anchor)), g.and(g.not(rises), g.less(p, anchor)));
    const dropped = g.and(away, g.greater(distance, limit));
    const logRatios = boundedLogRatios(g, input);
    const ratio = g.stopGradient(g.exp(logRatios));
    const weight = g.minimum(ratio, scalar('policy.ratioCap'));
    const gradient = g.neg(g.mul(g.mul(token('advantages'), weight), logProbs));
    return {
      losses: g.add(g.where(dropped, 0, gradient), anchorPenalty(g, input)),
      logRatios,
      ...trustRegionMetrics(g, input, { dropped, ratio, logRatios }),
      clippedLower: g.greater(ratio, scalar('policy.ratioCap')),
    };
  },
} as const satisfies PolicyLoss;

/** The limits in effect: 0.2 for the total variation and 0.05 for the KL where the settings leave them open. */
export function dppoLimits({ divergence, low, high }: DppoSettings): { low: number; high: number } {
  const usual = divergence === 'tv' ? 0.2 : 0.05;
  return { low: low ?? usual, high: high ?? usual };
}

/** τ · (log π_θ − log π_anchor)², which also pulls back the tokens that were dropped. */
export function anchorPenalty(g: GraphBuilder, { logProbs, token, scalar }: PolicyLossInput): Tensor {
  const move = g.sub(logProbs, token('oldLogProbs'));
  return g.mul(g.mul(move, move), scalar('policy.klTau'));
}

/**
 * Metrics of a loss that drops tokens outside of a trust region: the share it dropped (only where A ≠ 0, since others
 * have no gradient to lose), by the sign of A, and the estimate ρ − ln ρ − 1 of the divergence over kept and over
 * dropped tokens.
 */
export function trustRegionMetrics(
  g: GraphBuilder,
  { token }: PolicyLossInput,
  { dropped, ratio, logRatios }: { dropped: Tensor; ratio: Tensor; logRatios: Tensor },
): Pick<TokenLosses, 'clipped' | 'tokenMetrics'> {
  const advantages = token('advantages');
  const rises = g.greater(advantages, 0);
  const falls = g.less(advantages, 0);
  const clipped = g.and(dropped, g.or(rises, falls));
  const flag = (condition: Tensor) => g.where(condition, 1, 0);
  const divergence = g.sub(g.sub(ratio, g.stopGradient(logRatios)), 1);
  return {
    clipped,
    tokenMetrics: new Map<string, TokenMetric>([
      ['actor/dropped_high_frac', { value: flag(g.and(clipped, rises)), by: 'mean' }],
      ['actor/dropped_low_frac', { value: flag(g.and(clipped, falls)), by: 'mean' }],
      ['actor/dropped_kl', { value: divergence, where: dropped, by: 'mean' }],
      ['actor/kept_kl', { value: divergence, where: g.not(dropped), by: 'mean' }],
      [
        'actor/dropped_advantage_sign',
        { value: g.sub(flag(rises), flag(falls)), where: clipped, by: 'mean' },
      ],
    ]),
  };
}

/** a·ln(a/p) + (1 − a)·ln((1 − a + ε)/(1 − p + ε)), from logarithms of p and a. */
function binaryKl(g: GraphBuilder, logP: Tensor, logAnchor: Tensor): Tensor {
  const anchor = g.exp(logAnchor);
  const rest = (x: Tensor) => g.log(g.add(g.sub(1, x), COMPLEMENT_FLOOR));
  return g.add(
    g.mul(anchor, g.sub(logAnchor, logP)),
    g.mul(g.sub(1, anchor), g.sub(rest(anchor), rest(g.exp(logP)))),
  );
}
