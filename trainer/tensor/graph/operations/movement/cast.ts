import type { DType } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

type CastAttributes = Readonly<{ to: DType }>;

/** Changes the element type; floats are truncated towards zero, bool is 0 or 1. No gradient flows through it. */
export const cast: Operation<CastAttributes> = {
  name: 'cast',
  infer: ([x], { to }) => ({ dtype: to, shape: x.shape }),
  evaluate([x], { to }) {
    if (to === 'bool') return x.data.map(value => (value !== 0 ? 1 : 0));
    return to === 'int32' ? x.data.map(Math.trunc) : x.data;
  },
};
