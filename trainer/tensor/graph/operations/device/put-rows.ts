import type { TensorBuilder } from '../../builder.ts';
import { describe, GraphError, sameShape, sizeOf, type Tensor } from '../../tensor.ts';
import { expectFloat, expectIds, type Operation } from '../operation.ts';

/** Adds `table` with the rows at `places` replaced by `rows`; for runtimes with separate memory. */
export function putRows(g: TensorBuilder, table: Tensor, rows: Tensor, places: Tensor): Tensor {
  return g.apply('putRows', [table, rows, places]);
}

/**
 * table [n, ...rest], rows [m, ...rest], places [m] in 0 … n−1 → the table with row places[i] replaced by rows[i]; of rows
 * for one place any. Where the table is an input that stays on the device, it is changed there. Without gradient.
 */
export const putRowsOperation: Operation = {
  name: 'putRows',
  infer([table, rows, places]) {
    expectFloat('putRows', table, rows);
    expectIds('putRows', places);
    const [count] = rows.shape;
    const fits = table.shape.length > 0 && sameShape(rows.shape, [count, ...table.shape.slice(1)]);
    if (!fits || !sameShape(places.shape, [count])) {
      throw new GraphError(
        `putRows needs a table [n,...rest], rows [m,...rest] and places [m]; got ${describe(table)}, ${describe(rows)}, ${describe(places)}`,
      );
    }
    return table;
  },
  evaluate([table, rows, places]) {
    const width = sizeOf(table.shape.slice(1));
    const out = table.data.slice();
    places.data.forEach((place, i) => {
      out.set(rows.data.subarray(i * width, (i + 1) * width), place * width);
    });
    return out;
  },
};
