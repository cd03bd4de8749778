import type { NdArray } from '../../tensor.ts';
import { expectFloat, type Operation } from '../operation.ts';

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
export function logSoftmaxRows(x: NdArray): Float64Array {
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
