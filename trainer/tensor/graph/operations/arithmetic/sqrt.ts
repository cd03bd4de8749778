import { unary } from './elementwise.ts';

export const sqrt = unary('sqrt', Math.sqrt, ({ g, output, upstream }) =>
  g.div(g.mul(upstream, 0.5), output),
);
