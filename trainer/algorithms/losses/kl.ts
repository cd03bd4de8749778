import type { KlEstimator } from './settings.ts';

/** k3 clamps its exponent and its result, so that one wild token cannot blow up a batch (verl 0.6.1). */
export const K3_EXPONENT_LIMIT = 20;
export const K3_RESULT_LIMIT = 10;

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

/** Derivative of {@link klEstimate} with respect to log π; 0 where k3 is clamped. */
export function klDerivative(estimator: KlEstimator, d: number): number {
  switch (estimator) {
    case 'k1':
      return 1;
    case 'k2':
      return d;
    case 'k3': {
      const clamped = Math.abs(d) > K3_EXPONENT_LIMIT || Math.expm1(-d) + d > K3_RESULT_LIMIT;
      return clamped ? 0 : -Math.expm1(-d);
    }
    case 'abs':
      return Math.sign(d);
  }
}

function clamp(x: number, limit: number): number {
  return Math.min(Math.max(x, -limit), limit);
}
