import type { NdArray } from '../../tensor.ts';
import { type Shape, sizeOf, stridesOf } from '../../tensor.ts';

/** Axes are normalized, ascending and distinct. */
export type ReduceAttributes = Readonly<{ axes: readonly number[]; keepDims: boolean }>;

export function reducedShape(shape: Shape, { axes, keepDims }: ReduceAttributes): Shape {
  if (keepDims) return shape.map((extent, axis) => (axes.includes(axis) ? 1 : extent));
  return shape.filter((_, axis) => !axes.includes(axis));
}

/** Folds `x` over the axes in float64. */
export function reduce(
  x: NdArray,
  axes: readonly number[],
  initial: number,
  fold: (accumulated: number, value: number) => number,
): Float64Array {
  const kept = x.shape.map((extent, axis) => (axes.includes(axis) ? 1 : extent));
  const strides = stridesOf(x.shape);
  const target = stridesOf(kept).map((stride, axis) => (axes.includes(axis) ? 0 : stride));
  const out = new Float64Array(sizeOf(kept)).fill(initial);
  for (let i = 0; i < x.data.length; i++) {
    let offset = 0;
    for (let axis = 0; axis < strides.length; axis++) {
      offset += (Math.floor(i / strides[axis]) % x.shape[axis]) * target[axis];
    }
    out[offset] = fold(out[offset], x.data[i]);
  }
  return out;
}
