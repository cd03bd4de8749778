import { type Shape, sizeOf, stridesOf } from '../../../graph/tensor.ts';

/** Iteration over operands of one shape: extents innermost first, and each operand's strides along them in elements. */
export interface StridedLayout {
  readonly extents: readonly number[];
  readonly strides: readonly (readonly number[])[];
}

/** Strides of an operand along the axes of a shape it broadcasts to, 0 where it repeats; outermost first. */
export function broadcastStrides(operand: Shape, shape: Shape): number[] {
  const own = stridesOf(operand);
  return shape.map((_, axis) => {
    const at = axis - (shape.length - operand.length);
    return at < 0 || operand[at] === 1 ? 0 : own[at];
  });
}

/** Merges axes that all operands walk as one; at least one axis stays. Strides outermost first. */
export function collapse(shape: Shape, strides: readonly (readonly number[])[]): StridedLayout {
  const extents: number[] = [];
  const merged: number[][] = strides.map(() => []);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    if (shape[axis] === 1) continue;
    const last = extents.length - 1;
    const continues = strides.every((own, i) => last >= 0 && own[axis] === merged[i][last] * extents[last]);
    if (continues) {
      extents[last] *= shape[axis];
      continue;
    }
    extents.push(shape[axis]);
    strides.forEach((own, i) => {
      merged[i].push(own[axis]);
    });
  }
  if (extents.length === 0) {
    extents.push(sizeOf(shape));
    for (const own of merged) own.push(0);
  }
  return { extents, strides: merged };
}

/** A shape cut at one run of neighboring axes: [outer, middle, inner]. */
export interface AxisSplit {
  readonly outer: number;
  readonly middle: number;
  readonly inner: number;
}

/** @param end axis after the last one of the middle */
export function splitAxes(shape: Shape, start: number, end = start + 1): AxisSplit {
  return {
    outer: sizeOf(shape.slice(0, start)),
    middle: sizeOf(shape.slice(start, end)),
    inner: sizeOf(shape.slice(end)),
  };
}
