import { unary } from './elementwise.ts';

/** |x|; its gradient at 0 is 0. */
export const abs = unary({
  name: 'abs',
  onnx: 'Abs',
  scalar: function abs(x: number): number {
    return Math.abs(x);
  },
  gradient: ({ g, inputs, upstream }) => g.mul(upstream, g.sign(inputs[0])),
});
