import { unary } from './elementwise.ts';

export const cos = unary({
  name: 'cos',
  onnx: 'Cos',
  scalar: function cos(x: number): number {
    return Math.cos(x);
  },
  gradient: ({ g, inputs, upstream }) => g.neg(g.mul(upstream, g.sin(inputs[0]))),
});
