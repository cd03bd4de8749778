import { describe, GraphError, sameShape, sizeOf } from '../../tensor.ts';
import { expectFloat, expectIds, type Operation } from '../operation.ts';

type ScatterAttributes = Readonly<{ rows: number }>;

/** updates [...ids, ...rest], ids [...] → table [rows, ...rest]: row r is the sum of the updates with id r. */
export const scatterAddRows: Operation<ScatterAttributes> = {
  name: 'scatterAddRows',
  infer([updates, ids], { rows }) {
    expectFloat('scatterAddRows', updates);
    expectIds('scatterAddRows', ids);
    if (!sameShape(updates.shape.slice(0, ids.shape.length), ids.shape)) {
      throw new GraphError(
        `scatterAddRows: ${describe(updates)} does not begin with the shape of ids ${describe(ids)}`,
      );
    }
    return { dtype: updates.dtype, shape: [rows, ...updates.shape.slice(ids.shape.length)] };
  },
  gradient: ({ g, inputs: [, ids], upstream }) => [g.gather(upstream, ids), undefined],
  evaluate([updates, ids], _attributes, type) {
    const width = sizeOf(type.shape.slice(1));
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, i) => {
      for (let column = 0; column < width; column++)
        out[id * width + column] += updates.data[i * width + column];
    });
    return out;
  },
};
