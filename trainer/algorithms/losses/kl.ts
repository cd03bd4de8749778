import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { boundedLogRatios, type PolicyLossInput } from './policy-loss.ts';
import type { KlEstimator } from './settings.ts';

/** k3 clamps its exponent and its result, so that one wild token cannot blow up a batch (verl 0.6.1). */
export const K3_EXPONENT_LIMIT = 20;
export const K3_RESULT_LIMIT = 10;

/**
 * Below this |d| k3 is computed from its series x²/2 + x³/6 + x⁴/24 + x⁵/120 (x = −d), because e^x − 1 − x loses all
 * digits in float32; the series is off by at most 2e-11.
 */
const K3_SERIES_LIMIT = 0.05;

/**
 * Estimate of KL(π ‖ π_ref) from one sampled token, with d = log π − log π_ref (Schulman, "Approximating KL
 * Divergence", 2020; verl `kl_penalty`):
 *
 * k1 = d (unbiased, any sign) · k2 = d²/2 (biased, low variance) · k3 = e^(−d) − 1 + d (unbiased, ≥ 0) · abs = |d|
 */
export function klEstimate(estimator: KlEstimator, d: number): number {
  switch (estimator) {
    case 'k1':
      return d;
    case 'k2':
      return (d * d) / 2;
    case 'k3': {
      const bounded = clamp(-d, K3_EXPONENT_LIMIT);
      return clamp(Math.expm1(bounded) - bounded, K3_RESULT_LIMIT);
    }
    case 'abs':
      return Math.abs(d);
  }
}

/** {@link klEstimate} in the form that trains: d = log π − log π_ref per token → the estimate per token. */
export function klLoss(g: GraphBuilder, estimator: KlEstimator, d: Tensor): Tensor {
  switch (estimator) {
    case 'k1':
      return d;
    case 'k2':
      return g.mul(g.mul(d, d), 0.5);
    case 'k3':
      return k3(g, d);
    case 'abs':
      return g.abs(d);
  }
}

/**
 * Policy gradient of KL(π_θ ‖ π_ref) on sampled tokens, which distills the reference into the policy: the difference of
 * log-probabilities takes the place of an advantage. term = −stop_gradient(log π_ref − log π_θ)·min(ρ, cap) where kept,
 * else 0; + τ·(log π_θ − log π_anchor)². A token is kept unless its probability fell by more than `keepLow` below the
 * anchor's. Source: SDFT (arXiv 2601.19897) in the form of prime-rl `ref_kl_loss_fn`, which has no cap.
 */
export function reverseKlTerm(
  g: GraphBuilder,
  input: Pick<PolicyLossInput, 'logProbs' | 'token' | 'scalar'>,
): { readonly term: Tensor; readonly kept: Tensor } {
  const { logProbs, token, scalar } = input;
  const held = g.stopGradient(logProbs);
  const fall = g.sub(g.exp(token('oldLogProbs')), g.exp(held));
  const kept = g.not(g.greater(fall, scalar('klKeepLow')));
  const ratio = g.exp(g.stopGradient(boundedLogRatios(g, input)));
  const weight = g.mul(g.minimum(ratio, scalar('klRatioCap')), g.add(g.sub(logProbs, held), 1));
  const gain = g.mul(g.sub(held, token('referenceLogProbs')), weight);
  const move = g.sub(logProbs, token('oldLogProbs'));
  const penalty = g.mul(g.mul(move, move), scalar('klTau'));
  return { term: g.add(g.where(kept, gain, 0), penalty), kept };
}

function k3(g: GraphBuilder, d: Tensor): Tensor {
  const x = g.clip(g.neg(d), -K3_EXPONENT_LIMIT, K3_EXPONENT_LIMIT);
  const full = g.clip(g.sub(g.sub(g.exp(x), 1), x), -K3_RESULT_LIMIT, K3_RESULT_LIMIT);
  const bracket = g.add(g.mul(x, g.add(g.mul(x, g.add(g.mul(x, 1 / 120), 1 / 24)), 1 / 6)), 1 / 2);
  const series = g.mul(g.mul(x, x), bracket);
  return g.where(g.less(g.abs(x), K3_SERIES_LIMIT), series, full);
}

function clamp(x: number, limit: number): number {
  return Math.min(Math.max(x, -limit), limit);
}
