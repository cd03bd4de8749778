import { unary } from './elementwise.ts';

export const sin = unary('sin', Math.sin, ({ g, inputs, upstream }) => g.mul(upstream, g.cos(inputs[0])));
