import { unary } from '../arithmetic/elementwise.ts';

export const tanh = unary({
  name: 'tanh',
  onnx: 'Tanh',
  // From exp of a negative number, which never overflows.
  scalar: function tanh(x: number): number {
    const e = Math.exp(-2 * Math.abs(x));
    const t = (1 - e) / (1 + e);
    return x < 0 ? -t : t;
  },
  exact: Math.tanh,
  gradient: ({ g, output, upstream }) => g.mul(upstream, g.sub(1, g.mul(output, output))),
});
