import { GraphError, sizeOf, stridesOf } from '../../tensor.ts';
import { forEachBroadcast } from '../arithmetic/elementwise.ts';
import type { Operation } from '../operation.ts';

type TransposeAttributes = Readonly<{ permutation: readonly number[] }>;

/** Output axis i is input axis `permutation[i]`. */
export const transpose: Operation<TransposeAttributes> = {
  name: 'transpose',
  infer([x], { permutation }) {
    const sorted = permutation.toSorted((a, b) => a - b);
    if (sorted.length !== x.shape.length || sorted.some((axis, i) => axis !== i)) {
      throw new GraphError(
        `transpose: [${permutation.join(',')}] does not permute the axes of [${x.shape.join(',')}]`,
      );
    }
    return { dtype: x.dtype, shape: permutation.map(axis => x.shape[axis]) };
  },
  gradient({ g, attributes: { permutation }, upstream }) {
    const inverse = permutation.map((_, axis) => permutation.indexOf(axis));
    return [g.transpose(upstream, inverse)];
  },
  evaluate([x], { permutation }, type) {
    const out = new Float64Array(sizeOf(type.shape));
    const target = stridesOf(type.shape);
    const source = stridesOf(x.shape);
    forEachBroadcast(type.shape, [], i => {
      let offset = 0;
      for (let axis = 0; axis < target.length; axis++) {
        offset += (Math.floor(i / target[axis]) % type.shape[axis]) * source[permutation[axis]];
      }
      out[i] = x.data[offset];
    });
    return out;
  },
};
