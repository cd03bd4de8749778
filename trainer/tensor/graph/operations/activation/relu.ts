import { unary } from '../arithmetic/elementwise.ts';

/** max(x, 0); its gradient at 0 is 0. */
export const relu = unary({
  name: 'relu',
  onnx: 'Relu',
  scalar: function relu(x: number): number {
    return Math.max(x, 0);
  },
  gradient: ({ g, inputs, upstream }) => g.where(g.greater(inputs[0], 0), upstream, 0),
});
