import { describe, GraphError, sizeOf } from '../../tensor.ts';
import type { Operation } from '../operation.ts';

type ConcatAttributes = Readonly<{ axis: number }>;

/** Tensors one after the other along an axis; the other extents are equal. */
export const concat: Operation<ConcatAttributes> = {
  name: 'concat',
  infer(inputs, { axis }) {
    const [first] = inputs;
    let extent = 0;
    for (const x of inputs) {
      const fits =
        x.shape.length === first.shape.length && x.shape.every((e, i) => i === axis || e === first.shape[i]);
      if (!fits || x.dtype !== first.dtype) {
        throw new GraphError(`concat: ${describe(x)} does not fit ${describe(first)} along axis ${axis}`);
      }
      extent += x.shape[axis];
    }
    return { dtype: first.dtype, shape: first.shape.with(axis, extent) };
  },
  gradient({ g, inputs, attributes: { axis }, upstream, needs }) {
    let start = 0;
    return inputs.map((x, i) => {
      const end = start + x.shape[axis];
      const part = needs(i) ? g.slice(upstream, axis, start, end) : undefined;
      start = end;
      return part;
    });
  },
  evaluate(inputs, { axis }, type) {
    const out = new Float64Array(sizeOf(type.shape));
    const inner = sizeOf(type.shape.slice(axis + 1));
    const outer = sizeOf(type.shape.slice(0, axis));
    const stride = type.shape[axis] * inner;
    let start = 0;
    for (const x of inputs) {
      const width = x.shape[axis] * inner;
      for (let o = 0; o < outer; o++)
        out.set(x.data.subarray(o * width, (o + 1) * width), o * stride + start);
      start += width;
    }
    return out;
  },
};
