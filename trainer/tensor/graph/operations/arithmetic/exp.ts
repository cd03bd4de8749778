import { unary } from './elementwise.ts';

export const exp = unary({
  name: 'exp',
  onnx: 'Exp',
  scalar: function exp(x: number): number {
    return Math.exp(x);
  },
  gradient: ({ g, output, upstream }) => g.mul(upstream, output),
});
