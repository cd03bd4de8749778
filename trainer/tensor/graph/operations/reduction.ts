import type { Shape } from '../tensor.ts';
import { expectFloat, type Operation } from './operation.ts';

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
