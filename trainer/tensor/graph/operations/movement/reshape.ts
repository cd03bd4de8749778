import { GraphError, type Shape, sizeOf } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

type ReshapeAttributes = Readonly<{ shape: Shape }>;

export const reshape: Operation<ReshapeAttributes> = {
  name: 'reshape',
  infer([x], { shape }) {
    if (sizeOf(shape) !== sizeOf(x.shape)) {
      throw new GraphError(
        `reshape: [${x.shape.join(',')}] does not hold as many elements as [${shape.join(',')}]`,
      );
    }
    return { dtype: x.dtype, shape };
  },
  gradient: ({ g, inputs: [x], upstream }) => [g.reshape(upstream, x.shape)],
  evaluate: ([x]) => x.data,
};
