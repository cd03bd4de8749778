import { unary } from './elementwise.ts';

/** −1, 0 or 1; its gradient is 0. */
export const sign = unary({
  name: 'sign',
  onnx: 'Sign',
  scalar: function sign(x: number): number {
    return x > 0 ? 1 : x < 0 ? -1 : 0;
  },
  exact: Math.sign,
  gradient: ({ g, inputs }) => g.zeros(inputs[0].shape),
});
