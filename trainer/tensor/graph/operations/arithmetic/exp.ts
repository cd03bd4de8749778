import { unary } from './elementwise.ts';

export const exp = unary('exp', Math.exp, ({ g, output, upstream }) => g.mul(upstream, output));
