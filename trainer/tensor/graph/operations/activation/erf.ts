import { unary } from '../arithmetic/elementwise.ts';

/** The error function, 2/√π ∫₀ˣ exp(−t²) dt: what the exact Gaussian error linear unit is made of. */
export const erf = unary({
  name: 'erf',
  onnx: 'Erf',
  // Abramowitz and Stegun 7.1.26, error 1.5e-7.
  scalar: function erf(x: number): number {
    const z = Math.abs(x);
    const t = 1 / (1 + 0.3275911 * z);
    const p =
      t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
    const y = 1 - p * Math.exp(-z * z);
    return x < 0 ? -y : y;
  },
  exact: exactErf,
  gradient: ({ g, inputs: [x], upstream }) =>
    g.mul(upstream, g.mul(g.exp(g.neg(g.mul(x, x))), 2 / Math.sqrt(Math.PI))),
});

/** Taylor's series 2/√π exp(−x²) Σ 2ⁿ x²ⁿ⁺¹ / (2n+1)!!, with terms that all have one sign. */
function exactErf(x: number): number {
  if (Math.abs(x) > 6) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-17 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}
