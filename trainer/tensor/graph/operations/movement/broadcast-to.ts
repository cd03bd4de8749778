import { broadcastShapes, GraphError, type Shape, sameShape, sizeOf } from '../../tensor.ts';
import { forEachBroadcast } from '../arithmetic/elementwise.ts';
import type { Operation } from '../operation.ts';

type BroadcastAttributes = Readonly<{ shape: Shape }>;

/** Repeats along axes of extent 1 (and new leading ones) until the shape is reached. */
export const broadcastTo: Operation<BroadcastAttributes> = {
  name: 'broadcastTo',
  infer([x], { shape }) {
    if (!sameShape(broadcastShapes(x.shape, shape, 'broadcastTo'), shape)) {
      throw new GraphError(`broadcastTo: [${x.shape.join(',')}] does not broadcast to [${shape.join(',')}]`);
    }
    return { dtype: x.dtype, shape };
  },
  gradient: ({ g, inputs: [x], upstream }) => [g.sumTo(upstream, x.shape)],
  evaluate([x], { shape }) {
    const out = new Float64Array(sizeOf(shape));
    forEachBroadcast(shape, [x], (i, [ix]) => {
      out[i] = x.data[ix];
    });
    return out;
  },
};
