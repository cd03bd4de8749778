import { unary } from './elementwise.ts';

/** |x|; its gradient at 0 is 0. */
export const abs = unary('abs', Math.abs, ({ g, inputs, upstream }) => g.mul(upstream, g.sign(inputs[0])));
