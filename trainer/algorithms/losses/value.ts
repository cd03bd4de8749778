/** One token's value loss, its derivative with respect to the prediction, and whether the clip decided it. */
export interface ValueLoss {
  readonly loss: number;
  readonly derivative: number;
  readonly clipped: boolean;
}

/**
 * Clipped value regression: ½·max((v − R)², (clip(v, v_old ± ε) − R)²); ε = 0 leaves ½·(v − R)².
 *
 * Source: Schulman et al., 2017 (baselines' implementation); verl 0.6.1 `compute_value_loss`.
 */
export function valueLoss(value: number, oldValue: number, target: number, clip: number): ValueLoss {
  const error = value - target;
  const plain = error * error;
  if (clip === 0) return { loss: plain / 2, derivative: error, clipped: false };
  const bounded = Math.min(Math.max(value, oldValue - clip), oldValue + clip);
  const boundedSquare = (bounded - target) ** 2;
  const clipped = boundedSquare > plain;
  return { loss: (clipped ? boundedSquare : plain) / 2, derivative: clipped ? 0 : error, clipped };
}

/**
 * 1 − Var(R − V) / (Var(R) + 1e-5): how much of the returns the value head explained before the update; 1 is
 * perfect, 0 as good as a constant. Variances unbiased (verl `vf_explained_var`).
 */
export function explainedVariance(values: ArrayLike<number>, returns: ArrayLike<number>): number {
  const RETURN_VARIANCE_FLOOR = 1e-5;
  const errors = Float64Array.from(returns, (target, t) => target - values[t]);
  return 1 - variance(errors) / (variance(returns) + RETURN_VARIANCE_FLOOR);
}

function variance(values: ArrayLike<number>): number {
  let mean = 0;
  for (let i = 0; i < values.length; i++) mean += values[i] / values.length;
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += (values[i] - mean) ** 2;
  return values.length > 1 ? squares / (values.length - 1) : 0;
}
