import { unary } from '../arithmetic/elementwise.ts';

/** max(x, 0); its gradient at 0 is 0. */
export const relu = unary(
  'relu',
  x => Math.max(x, 0),
  ({ g, inputs, upstream }) => g.where(g.greater(inputs[0], 0), upstream, 0),
);
