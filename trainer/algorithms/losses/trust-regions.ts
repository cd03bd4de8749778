import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import {
  boundedLogRatios,
  LOG_RATIO_LIMIT,
  type PolicyLoss,
  type PolicyLossInput,
  type TokenLosses,
  type TokenMetric,
} from './policy-loss.ts';
import { above, atLeast, type DppoSettings, requireAggregation } from './settings.ts';

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
