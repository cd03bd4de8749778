import {
  broadcastShapes,
  type DType,
  describe,
  GraphError,
  type Shape,
  sameShape,
  sizeOf,
} from '../tensor.ts';
import { expectFloat, expectIds, type Operation } from './operation.ts';

/** Operations that move elements without computing: shapes, parts, rows by id, and types. */

export type CastAttributes = Readonly<{ to: DType }>;

/** Changes the element type; floats are truncated towards zero, bool is 0 or 1. No gradient flows through it. */
export const cast: Operation<CastAttributes> = {
  name: 'cast',
  infer: ([x], { to }) => ({ dtype: to, shape: x.shape }),
};

/** The value itself, a constant to differentiation. */
export const stopGradient: Operation = {
  name: 'stopGradient',
  infer: ([x]) => ({ dtype: x.dtype, shape: x.shape }),
};

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
  fold: ([x]) => x,
};

export type TransposeAttributes = Readonly<{ permutation: readonly number[] }>;

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
};

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
  fold: ([x], { shape }) => (x.length === 1 ? new Float32Array(sizeOf(shape)).fill(x[0]) : undefined),
};

export type SliceAttributes = Readonly<{ axis: number; start: number; end: number }>;

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
};

export type PadAttributes = Readonly<{ axis: number; before: number; after: number }>;

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
};

export type ConcatAttributes = Readonly<{ axis: number }>;

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
};

/**
 * Rows of axis 0: table [n, ...rest], ids [...] in 0 … n−1 → [...ids, ...rest]. The gradient is a scatter-add. With the
 * optional `inverse` [n], each row's index among the ids, it is a gather by that instead; this is right only if a row
 * at several ids gets a gradient from that one id alone.
 */
export const gather: Operation = {
  name: 'gather',
  infer([table, ids, inverse]) {
    expectIds('gather', ids);
    if (table.shape.length === 0)
      throw new GraphError(`gather needs a table of rank 1 or more, got ${describe(table)}`);
    if (inverse !== undefined) {
      expectIds('gather', inverse);
      if (inverse.shape.length !== 1 || inverse.shape[0] !== table.shape[0] || ids.shape.length !== 1) {
        throw new GraphError(
          `gather needs ids of rank 1 and an inverse [${table.shape[0]}], got ${describe(ids)} and ${describe(inverse)}`,
        );
      }
    }
    return { dtype: table.dtype, shape: [...ids.shape, ...table.shape.slice(1)] };
  },
  gradient: ({ g, inputs: [table, ids, inverse], upstream }) => [
    inverse === undefined
      ? g.scatterAddRows(upstream, ids, table.shape[0])
      : g.rearrange(upstream, inverse, ids),
    undefined,
    undefined,
  ],
};

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
};

/** One entry of the last axis per row: x [..., v], ids [...] → [...]. */
export const takeLast: Operation = {
  name: 'takeLast',
  infer([x, ids]) {
    expectIds('takeLast', ids);
    if (!sameShape(x.shape.slice(0, -1), ids.shape)) {
      throw new GraphError(`takeLast: ids ${describe(ids)} are not one per row of ${describe(x)}`);
    }
    return { dtype: x.dtype, shape: ids.shape };
  },
  gradient: ({ g, inputs: [x, ids], upstream }) => [
    g.putLast(upstream, ids, x.shape[x.shape.length - 1]),
    undefined,
  ],
};

export type PutAttributes = Readonly<{ width: number }>;

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
};
