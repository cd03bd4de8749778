import { unary } from './elementwise.ts';

export const cos = unary('cos', Math.cos, ({ g, inputs, upstream }) =>
  g.neg(g.mul(upstream, g.sin(inputs[0]))),
);
