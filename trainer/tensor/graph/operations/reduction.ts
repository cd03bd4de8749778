import { type NdArray, type Shape, sizeOf, stridesOf } from '../tensor.ts';
import { expectFloat, type Operation } from './operation.ts';

/** Reductions over axes, and normalizations of rows. */

/** Axes are normalized, ascending and distinct. */
export type ReduceAttributes = Readonly<{ axes: readonly number[]; keepDims: boolean }>;

function reducedShape(shape: Shape, { axes, keepDims }: ReduceAttributes): Shape {
  if (keepDims) return shape.map((extent, axis) => (axes.includes(axis) ? 1 : extent));
  return shape.filter((_, axis) => !axes.includes(axis));
}

/** Folds `x` over the axes in float64. */
function reduce(
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
  evaluate: ([x], { axes }) => reduce(x, axes, 0, (total, value) => total + value),
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
  evaluate: ([x], { axes }) => reduce(x, axes, Number.NEGATIVE_INFINITY, Math.max),
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
  evaluate: ([x]) => logSoftmaxRows(x).map(Math.exp),
};

/** log softmax of every row of the last axis, in float64. */
function logSoftmaxRows(x: NdArray): Float64Array {
  const width = x.shape[x.shape.length - 1];
  const out = new Float64Array(x.data.length);
  for (let start = 0; start < out.length; start += width) {
    const row = x.data.subarray(start, start + width);
    let largest = Number.NEGATIVE_INFINITY;
    for (const value of row) largest = Math.max(largest, value);
    let total = 0;
    for (const value of row) total += Math.exp(value - largest);
    const shift = largest + Math.log(total);
    for (let i = 0; i < width; i++) out[start + i] = row[i] - shift;
  }
  return out;
}

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
  evaluate: ([x]) => logSoftmaxRows(x),
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
  evaluate([x], attributes) {
    const width = x.shape[x.shape.length - 1];
    const type = { dtype: x.dtype, shape: [...x.shape.slice(0, -1), 1] };
    const inverse = inverseRms.evaluate([x], attributes, type);
    return x.data.map((value, i) => value * inverse[Math.floor(i / width)]);
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
  evaluate([x], { epsilon }, type) {
    const width = x.shape[x.shape.length - 1];
    const out = new Float64Array(sizeOf(type.shape));
    for (let row = 0; row < out.length; row++) {
      let total = 0;
      for (let i = 0; i < width; i++) total += x.data[row * width + i] ** 2;
      out[row] = 1 / Math.sqrt(total / width + epsilon);
    }
    return out;
  },
};
