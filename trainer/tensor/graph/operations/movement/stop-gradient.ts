import type { Operation } from '../operation.ts';

/** The value itself, a constant to differentiation. */
export const stopGradient: Operation = {
  name: 'stopGradient',
  infer: ([x]) => ({ dtype: x.dtype, shape: x.shape }),
  evaluate: ([x]) => x.data,
};
