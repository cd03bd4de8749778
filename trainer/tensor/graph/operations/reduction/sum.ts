import { expectFloat, type Operation } from '../operation.ts';
import { type ReduceAttributes, reduce, reducedShape } from './reduction.ts';

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
