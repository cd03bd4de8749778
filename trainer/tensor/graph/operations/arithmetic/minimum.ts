import { binary } from './elementwise.ts';

/** Half of the gradient goes to each operand where both are equal, as in PyTorch. */
export const minimum = binary({
  name: 'minimum',
  onnx: 'Min',
  scalar: function minimum(a: number, b: number): number {
    return Math.min(a, b);
  },
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream, needs }) => {
    const half = g.mul(upstream, 0.5);
    const share = (own: typeof a, other: typeof a) =>
      g.sumTo(g.where(g.less(own, other), upstream, g.where(g.equal(own, other), half, 0)), own.shape);
    return [needs(0) ? share(a, b) : undefined, needs(1) ? share(b, a) : undefined];
  },
});
