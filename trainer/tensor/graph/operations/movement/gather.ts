import { describe, GraphError, sizeOf } from '../../tensor.ts';
import { expectIds, type Operation } from '../operation.ts';

/**
 * Rows of axis 0: table [n, ...rest], ids [...] in 0 … n−1 → [...ids, ...rest]. The gradient is a scatter-add; where an
 * optional `inverse` [n] gives the index among the ids of each row, it is the gather by that: right for a row at several ids
 * only if no gradient comes back from the others.
 */
export const gather: Operation = {
  name: 'gather',
  infer([table, ids, inverse]) {
    expectIds('gather', ids);
    if (table.shape.length === 0)
      throw new GraphError(`gather needs a table of rank 1 or more, got ${describe(table)}`);
    if (inverse !== undefined) {
      expectIds('gather', inverse);
      if (inverse.shape.length !== 1 || inverse.shape[0] !== table.shape[0] || ids.shape.length !== 1) {
        throw new GraphError(
          `gather needs ids of rank 1 and an inverse [${table.shape[0]}], got ${describe(ids)} and ${describe(inverse)}`,
        );
      }
    }
    return { dtype: table.dtype, shape: [...ids.shape, ...table.shape.slice(1)] };
  },
  gradient: ({ g, inputs: [table, ids, inverse], upstream }) => [
    inverse === undefined
      ? g.scatterAddRows(upstream, ids, table.shape[0])
      : g.rearrange(upstream, inverse, ids),
    undefined,
    undefined,
  ],
  evaluate([table, ids], _attributes, type) {
    const width = sizeOf(table.shape.slice(1));
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, i) => {
      if (!(id >= 0 && id < table.shape[0])) {
        throw new RangeError(`gather: id ${id} is outside a table of ${table.shape[0]} rows`);
      }
      out.set(table.data.subarray(id * width, (id + 1) * width), i * width);
    });
    return out;
  },
};
