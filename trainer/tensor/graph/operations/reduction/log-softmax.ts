import { expectFloat, type Operation } from '../operation.ts';
import { logSoftmaxRows } from './softmax.ts';

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
