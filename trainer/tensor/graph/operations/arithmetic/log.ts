import { unary } from './elementwise.ts';

/** Natural logarithm. */
export const log = unary({
  name: 'log',
  onnx: 'Log',
  scalar: function log(x: number): number {
    return Math.log(x);
  },
  gradient: ({ g, inputs, upstream }) => g.div(upstream, inputs[0]),
});
