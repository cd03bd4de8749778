import { unary } from './elementwise.ts';

export const neg = unary({
  name: 'neg',
  onnx: 'Neg',
  scalar: function neg(x: number): number {
    return -x;
  },
  gradient: ({ g, upstream }) => g.neg(upstream),
});
