import { GraphError, sizeOf } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

type SliceAttributes = Readonly<{ axis: number; start: number; end: number }>;

/** Entries start (included) to end (excluded) along one axis. */
export const slice: Operation<SliceAttributes> = {
  name: 'slice',
  infer([x], { axis, start, end }) {
    if (!(start >= 0 && start < end && end <= x.shape[axis])) {
      throw new GraphError(
        `slice: ${start} to ${end} is not a range within axis ${axis} of [${x.shape.join(',')}]`,
      );
    }
    return { dtype: x.dtype, shape: x.shape.with(axis, end - start) };
  },
  gradient: ({ g, inputs: [x], attributes: { axis, start, end }, upstream }) => [
    g.pad(upstream, axis, start, x.shape[axis] - end),
  ],
  evaluate([x], { axis, start, end }, type) {
    const inner = sizeOf(x.shape.slice(axis + 1));
    const outer = sizeOf(x.shape.slice(0, axis));
    const width = (end - start) * inner;
    const out = new Float64Array(sizeOf(type.shape));
    for (let o = 0; o < outer; o++) {
      const from = (o * x.shape[axis] + start) * inner;
      out.set(x.data.subarray(from, from + width), o * width);
    }
    return out;
  },
};
