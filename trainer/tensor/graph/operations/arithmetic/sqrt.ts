import { unary } from './elementwise.ts';

export const sqrt = unary({
  name: 'sqrt',
  onnx: 'Sqrt',
  scalar: function sqrt(x: number): number {
    return Math.sqrt(x);
  },
  gradient: ({ g, output, upstream }) => g.div(g.mul(upstream, 0.5), output),
});
