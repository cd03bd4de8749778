import { expectFloat, type Operation } from '../operation.ts';
import { type ReduceAttributes, reduce, reducedShape } from './reduction.ts';

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
