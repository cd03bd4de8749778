import { sizeOf } from '../../tensor.ts';
import { expectFloat, type Operation } from '../operation.ts';

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
