import { unary } from '../arithmetic/elementwise.ts';

export const tanh = unary('tanh', Math.tanh, ({ g, output, upstream }) =>
  g.mul(upstream, g.sub(1, g.mul(output, output))),
);
