import { describe, GraphError, sameShape, sizeOf } from '../../tensor.ts';
import { expectIds, type Operation } from '../operation.ts';

type PutAttributes = Readonly<{ width: number }>;

/** values [...], ids [...] → [..., width], zero but for the value at its id: the transpose of takeLast. */
export const putLast: Operation<PutAttributes> = {
  name: 'putLast',
  infer([values, ids], { width }) {
    expectIds('putLast', ids);
    if (!sameShape(values.shape, ids.shape)) {
      throw new GraphError(`putLast: values ${describe(values)} and ids ${describe(ids)} differ in shape`);
    }
    return { dtype: values.dtype, shape: [...values.shape, width] };
  },
  gradient: ({ g, inputs: [, ids], upstream }) => [g.takeLast(upstream, ids), undefined],
  evaluate([values, ids], { width }, type) {
    const out = new Float64Array(sizeOf(type.shape));
    ids.data.forEach((id, row) => {
      out[row * width + id] = values.data[row];
    });
    return out;
  },
};
