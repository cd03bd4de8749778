import { unary } from './elementwise.ts';

/** −1, 0 or 1; its gradient is 0. */
export const sign = unary('sign', Math.sign, ({ g, inputs }) => g.zeros(inputs[0].shape));
