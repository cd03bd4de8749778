import { expectFloat, type Operation } from '../operation.ts';
import { inverseRms } from './inverse-rms.ts';

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
