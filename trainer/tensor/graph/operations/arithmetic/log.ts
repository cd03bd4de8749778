import { unary } from './elementwise.ts';

/** Natural logarithm. */
export const log = unary('log', Math.log, ({ g, inputs, upstream }) => g.div(upstream, inputs[0]));
