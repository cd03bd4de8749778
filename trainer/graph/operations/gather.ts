import { describe, GraphError, sizeOf } from '../tensor.ts';
import { expectIds, type Operation } from './operation.ts';

/** Rows of axis 0: table [n, ...rest], ids [...] in 0 … n−1 → [...ids, ...rest]. The gradient is a scatter-add. */
export const gather: Operation = {
  name: 'gather',
  infer([table, ids]) {
    expectIds('gather', ids);
    if (table.shape.length === 0)
      throw new GraphError(`gather needs a table of rank 1 or more, got ${describe(table)}`);
    return { dtype: table.dtype, shape: [...ids.shape, ...table.shape.slice(1)] };
  },
  gradient: ({ g, inputs: [table, ids], upstream }) => [
    g.scatterAddRows(upstream, ids, table.shape[0]),
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
