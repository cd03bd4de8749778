import { sizeOf } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

type PadAttributes = Readonly<{ axis: number; before: number; after: number }>;

/** Zeros before and after along one axis: the transpose of slice. */
export const pad: Operation<PadAttributes> = {
  name: 'pad',
  infer: ([x], { axis, before, after }) => ({
    dtype: x.dtype,
    shape: x.shape.with(axis, x.shape[axis] + before + after),
  }),
  gradient: ({ g, inputs: [x], attributes: { axis, before }, upstream }) => [
    g.slice(upstream, axis, before, before + x.shape[axis]),
  ],
  evaluate([x], { axis, before }, type) {
    const inner = sizeOf(x.shape.slice(axis + 1));
    const outer = sizeOf(x.shape.slice(0, axis));
    const width = x.shape[axis] * inner;
    const out = new Float64Array(sizeOf(type.shape));
    for (let o = 0; o < outer; o++) {
      out.set(x.data.subarray(o * width, (o + 1) * width), (o * type.shape[axis] + before) * inner);
    }
    return out;
  },
};
