import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { K3_EXPONENT_LIMIT, K3_RESULT_LIMIT } from './kl.ts';
import type { KlEstimator } from './settings.ts';

/**
 * Below this |d| k3 is taken from its series x²/2 + x³/6 + x⁴/24 + x⁵/120 (x = −d), because e^x − 1 − x loses all
 * digits in float32; the series is off by 2e-11 at most.
 */
const K3_SERIES_LIMIT = 0.05;

/** Graph form of `klEstimate`: d = log π − log π_ref per token → the estimate per token. */
export function klGraph(g: GraphBuilder, estimator: KlEstimator, d: Tensor): Tensor {
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

function k3(g: GraphBuilder, d: Tensor): Tensor {
  const x = g.clip(g.neg(d), -K3_EXPONENT_LIMIT, K3_EXPONENT_LIMIT);
  const full = g.clip(g.sub(g.sub(g.exp(x), 1), x), -K3_RESULT_LIMIT, K3_RESULT_LIMIT);
  const bracket = g.add(g.mul(x, g.add(g.mul(x, g.add(g.mul(x, 1 / 120), 1 / 24)), 1 / 6)), 1 / 2);
  const series = g.mul(g.mul(x, x), bracket);
  return g.where(g.less(g.abs(x), K3_SERIES_LIMIT), series, full);
}
