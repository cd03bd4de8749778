import { binary } from './elementwise.ts';

/** Half of the gradient goes to each operand where both are equal, as in PyTorch. */
export const maximum = binary({
  name: 'maximum',
  onnx: 'Max',
  scalar: function maximum(a: number, b: number): number {
    return Math.max(a, b);
  },
  accepts: ['float32', 'int32'],
  gradient: ({ g, inputs: [a, b], upstream, needs }) => {
    const half = g.mul(upstream, 0.5);
    const share = (own: typeof a, other: typeof a) =>
      g.sumTo(g.where(g.greater(own, other), upstream, g.where(g.equal(own, other), half, 0)), own.shape);
    return [needs(0) ? share(a, b) : undefined, needs(1) ? share(b, a) : undefined];
  },
});
