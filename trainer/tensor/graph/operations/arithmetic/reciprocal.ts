import { unary } from './elementwise.ts';

/** 1 / x. */
export const reciprocal = unary({
  name: 'reciprocal',
  onnx: 'Reciprocal',
  scalar: function reciprocal(x: number): number {
    return 1 / x;
  },
  gradient: ({ g, output, upstream }) => g.neg(g.mul(upstream, g.mul(output, output))),
});
