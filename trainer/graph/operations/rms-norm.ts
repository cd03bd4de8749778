import { describe, GraphError, sameShape } from '../tensor.ts';
import { inverseRms } from './inverse-rms.ts';
import { expectFloat, type Operation } from './operation.ts';

export type RmsNormAttributes = Readonly<{ epsilon: number }>;

/** x / √(mean(x²) + ε) · weight over the last axis (Zhang & Sennrich, 2019); weight has the extent of that axis. */
export const rmsNorm: Operation<RmsNormAttributes> = {
  name: 'rmsNorm',
  infer([x, weight]) {
    expectFloat('rmsNorm', x, weight);
    if (!sameShape(weight.shape, x.shape.slice(-1))) {
      throw new GraphError(
        `rmsNorm: weight ${describe(weight)} does not fit the last axis of ${describe(x)}`,
      );
    }
    return { dtype: x.dtype, shape: x.shape };
  },
  gradient({ g, inputs: [x, weight], attributes: { epsilon }, upstream, needs }) {
    const inverse = g.inverseRms(x, epsilon);
    const normal = g.mul(x, inverse);
    const weighted = g.mul(upstream, weight);
    const projection = g.mean(g.mul(weighted, normal), [-1], true);
    return [
      needs(0) ? g.mul(g.sub(weighted, g.mul(normal, projection)), inverse) : undefined,
      needs(1) ? g.sumTo(g.mul(upstream, normal), weight.shape) : undefined,
    ];
  },
  evaluate([x, weight], attributes) {
    const width = weight.data.length;
    const type = { dtype: x.dtype, shape: [...x.shape.slice(0, -1), 1] };
    const inverse = inverseRms.evaluate([x], attributes, type);
    return x.data.map((value, i) => value * inverse[Math.floor(i / width)] * weight.data[i % width]);
  },
};
