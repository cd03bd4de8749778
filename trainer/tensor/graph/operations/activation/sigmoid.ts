import { unary } from '../arithmetic/elementwise.ts';

export const sigmoid = unary({
  name: 'sigmoid',
  onnx: 'Sigmoid',
  // From exp of a negative number, which never overflows.
  scalar: function sigmoid(x: number): number {
    const e = Math.exp(-Math.abs(x));
    return x < 0 ? e / (1 + e) : 1 / (1 + e);
  },
  exact: x => 1 / (1 + Math.exp(-x)),
  gradient: ({ g, output, upstream }) => g.mul(upstream, g.mul(output, g.sub(1, output))),
});
