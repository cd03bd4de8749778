import { unary } from '../arithmetic/elementwise.ts';

export const sigmoid = unary(
  'sigmoid',
  x => 1 / (1 + Math.exp(-x)),
  ({ g, output, upstream }) => g.mul(upstream, g.mul(output, g.sub(1, output))),
);
