import { broadcastShapes, describe, GraphError, type Shape, type Tensor } from '../tensor.ts';
import { expectFloat, type GradientContext, type Operation } from './operation.ts';

/** The matrix product; those with frozen weights are in `blocks.ts`. */

/** `scale` multiplies the product; the transposes swap the last two axes before multiplying. */
export type MatmulAttributes = Readonly<{ transposeA: boolean; transposeB: boolean; scale: number }>;

/**
 * Matrix product over the last two axes, [..., m, k] × [..., k, n] → [..., m, n]; leading axes broadcast.
 * A rank-2 right side is applied to every row of the left one.
 */
export const matmul: Operation<MatmulAttributes> = {
  name: 'matmul',
  infer([a, b], attributes) {
    expectFloat('matmul', a, b);
    if (a.shape.length < 2 || b.shape.length < 2) {
      throw new GraphError(`matmul needs tensors of rank 2 or more, got ${describe(a)} and ${describe(b)}`);
    }
    const left = matrixOf(a.shape, attributes.transposeA);
    const right = matrixOf(b.shape, attributes.transposeB);
    if (left.columns !== right.rows) {
      throw new GraphError(
        `matmul: inner extents ${left.columns} and ${right.rows} differ (${describe(a)}${attributes.transposeA ? 'ᵀ' : ''} × ${describe(b)}${attributes.transposeB ? 'ᵀ' : ''})`,
      );
    }
    const batch = broadcastShapes(a.shape.slice(0, -2), b.shape.slice(0, -2), 'matmul');
    return { dtype: 'float32', shape: [...batch, left.rows, right.columns] };
  },
  gradient(context) {
    return [
      context.needs(0) ? leftGradient(context) : undefined,
      context.needs(1) ? rightGradient(context) : undefined,
    ];
  },
};

export function matrixOf(shape: Shape, transposed: boolean): { rows: number; columns: number } {
  const [rows, columns] = shape.slice(-2);
  return transposed ? { rows: columns, columns: rows } : { rows, columns };
}

function leftGradient({
  g,
  inputs: [a, b],
  attributes,
  upstream,
}: GradientContext<MatmulAttributes>): Tensor {
  const { transposeA, transposeB, scale } = attributes;
  const gradient = transposeA
    ? g.matmul(b, upstream, { transposeA: transposeB, transposeB: true, scale })
    : g.matmul(upstream, b, { transposeB: !transposeB, scale });
  return g.sumTo(gradient, a.shape);
}

function rightGradient({ g, inputs, attributes, upstream }: GradientContext<MatmulAttributes>): Tensor {
  const { transposeA, transposeB, scale } = attributes;
  const b = inputs[1];
  let a = inputs[0];
  let dy = upstream;
  if (b.shape.length === 2 && a.shape.length > 2 && !transposeA) {
    a = g.reshape(a, [-1, a.shape[a.shape.length - 1]]);
    dy = g.reshape(dy, [-1, dy.shape[dy.shape.length - 1]]);
  }
  const gradient = transposeB
    ? g.matmul(dy, a, { transposeA: true, transposeB: transposeA, scale })
    : g.matmul(a, dy, { transposeA: !transposeA, scale });
  return g.sumTo(gradient, b.shape);
}

/** Reductions over axes, and normalizations of rows. */

/** Axes are normalized, ascending and distinct. */
export type ReduceAttributes = Readonly<{ axes: readonly number[]; keepDims: boolean }>;

function reducedShape(shape: Shape, { axes, keepDims }: ReduceAttributes): Shape {
  if (keepDims) return shape.map((extent, axis) => (axes.includes(axis) ? 1 : extent));
  return shape.filter((_, axis) => !axes.includes(axis));
}

export const sum: Operation<ReduceAttributes> = {
  name: 'sum',
  infer([x], attributes) {
    expectFloat('sum', x);
    return { dtype: x.dtype, shape: reducedShape(x.shape, attributes) };
  },
  gradient({ g, inputs: [x], attributes: { axes }, upstream }) {
    const kept = reducedShape(x.shape, { axes, keepDims: true });
    return [g.broadcastTo(g.reshape(upstream, kept), x.shape)];
  },
};

/** Largest value over the axes; equal largest values share the gradient evenly, as torch.amax does. */
export const max: Operation<ReduceAttributes> = {
  name: 'max',
  infer([x], attributes) {
    expectFloat('max', x);
    return { dtype: x.dtype, shape: reducedShape(x.shape, attributes) };
  },
  gradient({ g, inputs: [x], output, attributes: { axes }, upstream }) {
    const kept = reducedShape(x.shape, { axes, keepDims: true });
    const isLargest = g.equal(x, g.reshape(output, kept));
    const ties = g.sum(g.cast(isLargest, 'float32'), axes, true);
    return [g.where(isLargest, g.div(g.reshape(upstream, kept), ties), 0)];
  },
};

/** exp(x − max) / Σ over the last axis. */
export const softmax: Operation = {
  name: 'softmax',
  infer([x]) {
    expectFloat('softmax', x);
    return { dtype: x.dtype, shape: x.shape };
  },
  gradient({ g, output, upstream }) {
    const inner = g.sum(g.mul(upstream, output), [-1], true);
    return [g.mul(output, g.sub(upstream, inner))];
  },
};

/** x − log Σ exp x over the last axis. */
export const logSoftmax: Operation = {
  name: 'logSoftmax',
  infer([x]) {
    expectFloat('logSoftmax', x);
    return { dtype: x.dtype, shape: x.shape };
  },
  gradient({ g, inputs: [x], upstream }) {
    return [g.sub(upstream, g.mul(g.softmax(x), g.sum(upstream, [-1], true)))];
  },
};

export type RmsNormalizeAttributes = Readonly<{ epsilon: number }>;

/** x / √(mean(x²) + ε) over the last axis: RMS norm (Zhang & Sennrich, 2019) before its weight. */
export const rmsNormalize: Operation<RmsNormalizeAttributes> = {
  name: 'rmsNormalize',
  infer([x]) {
    expectFloat('rmsNormalize', x);
    return { dtype: x.dtype, shape: x.shape };
  },
  gradient({ g, inputs: [x], output, attributes: { epsilon }, upstream }) {
    const projection = g.mean(g.mul(upstream, output), [-1], true);
    return [g.mul(g.sub(upstream, g.mul(output, projection)), g.inverseRms(x, epsilon))];
  },
};

type InverseRmsAttributes = Readonly<{ epsilon: number }>;

/** 1 / √(mean(x²) + ε) over the last axis, kept with extent 1. */
export const inverseRms: Operation<InverseRmsAttributes> = {
  name: 'inverseRms',
  infer([x]) {
    expectFloat('inverseRms', x);
    return { dtype: x.dtype, shape: [...x.shape.slice(0, -1), 1] };
  },
  gradient({ g, inputs: [x], output, upstream }) {
    const width = x.shape[x.shape.length - 1];
    const cubed = g.mul(output, g.mul(output, output));
    return [g.mul(x, g.mul(g.mul(upstream, cubed), -1 / width))];
  },
};
