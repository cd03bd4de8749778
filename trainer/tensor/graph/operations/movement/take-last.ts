import { describe, GraphError, sameShape } from '../../tensor.ts';
import { expectIds, type Operation } from '../operation.ts';

/** One entry of the last axis per row: x [..., v], ids [...] → [...]. */
export const takeLast: Operation = {
  name: 'takeLast',
  infer([x, ids]) {
    expectIds('takeLast', ids);
    if (!sameShape(x.shape.slice(0, -1), ids.shape)) {
      throw new GraphError(`takeLast: ids ${describe(ids)} are not one per row of ${describe(x)}`);
    }
    return { dtype: x.dtype, shape: ids.shape };
  },
  gradient: ({ g, inputs: [x, ids], upstream }) => [
    g.putLast(upstream, ids, x.shape[x.shape.length - 1]),
    undefined,
  ],
  evaluate([x, ids]) {
    const width = x.shape[x.shape.length - 1];
    return ids.data.map((id, row) => x.data[row * width + id]);
  },
};
