import { unary } from './elementwise.ts';

/** 1 / x. */
export const reciprocal = unary(
  'reciprocal',
  x => 1 / x,
  ({ g, output, upstream }) => g.neg(g.mul(upstream, g.mul(output, output))),
);
