import { unary } from './elementwise.ts';

export const neg = unary(
  'neg',
  x => -x,
  ({ g, upstream }) => g.neg(upstream),
);
