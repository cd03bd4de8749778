import { unary } from './elementwise.ts';

export const sin = unary({
  name: 'sin',
  onnx: 'Sin',
  scalar: function sin(x: number): number {
    return Math.sin(x);
  },
  gradient: ({ g, inputs, upstream }) => g.mul(upstream, g.cos(inputs[0])),
});
