import { binary } from './elementwise.ts';

/** Where both are equal the gradient goes half to each, as in PyTorch. */
export const minimum = binary('minimum', Math.min, {
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream, needs }) => {
    const half = g.mul(upstream, 0.5);
    const share = (own: typeof a, other: typeof a) =>
      g.sumTo(g.where(g.less(own, other), upstream, g.where(g.equal(own, other), half, 0)), own.shape);
    return [needs(0) ? share(a, b) : undefined, needs(1) ? share(b, a) : undefined];
  },
});
