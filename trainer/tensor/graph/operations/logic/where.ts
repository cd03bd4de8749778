import { broadcastShapes, describe, GraphError, sizeOf } from '../../tensor.ts';
import { forEachBroadcast } from '../arithmetic/elementwise.ts';
import type { Operation } from '../operation.ts';

/** `a` where the condition holds, `b` elsewhere; the value not taken is never read into the result, NaN included. */
export const where: Operation = {
  name: 'where',
  infer([condition, a, b]) {
    if (condition.dtype !== 'bool')
      throw new GraphError(`where needs a bool condition, got ${describe(condition)}`);
    if (a.dtype !== b.dtype) {
      throw new GraphError(`where needs two values of one type, got ${describe(a)} and ${describe(b)}`);
    }
    return {
      dtype: a.dtype,
      shape: broadcastShapes(condition.shape, broadcastShapes(a.shape, b.shape, 'where'), 'where'),
    };
  },
  gradient: ({ g, inputs: [condition, a, b], upstream, needs }) => [
    undefined,
    needs(1) ? g.sumTo(g.where(condition, upstream, 0), a.shape) : undefined,
    needs(2) ? g.sumTo(g.where(condition, 0, upstream), b.shape) : undefined,
  ],
  evaluate([condition, a, b], _attributes, type) {
    const out = new Float64Array(sizeOf(type.shape));
    forEachBroadcast(type.shape, [condition, a, b], (i, [ic, ia, ib]) => {
      out[i] = condition.data[ic] !== 0 ? a.data[ia] : b.data[ib];
    });
    return out;
  },
};
