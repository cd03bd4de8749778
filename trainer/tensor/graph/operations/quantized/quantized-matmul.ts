import { describe, GraphError, sameShape, sizeOf } from '../../tensor.ts';
import { expectFloat, type Operation } from '../operation.ts';
import { dequantize, type Quantization, quantizedLayout } from './blockwise.ts';

/** `transposed` multiplies by the matrix [outputs, inputs] itself instead of its transpose. */
export type QuantizedMatmulAttributes = Readonly<{
  kind: Quantization;
  outputs: number;
  inputs: number;
  transposed: boolean;
}>;

/**
 * x·Wᵀ, [rows, inputs] × [outputs, inputs] → [rows, outputs], with W as blockwise codes and scales, computed in float32.
 * W is frozen: x alone has a gradient, dy·W. Inputs: x, codes, scales.
 */
export const quantizedMatmul: Operation<QuantizedMatmulAttributes> = {
  name: 'quantizedMatmul',
  infer([x, codes, scales], { kind, outputs, inputs, transposed }) {
    expectFloat('quantizedMatmul', x, scales);
    const layout = quantizedLayout(kind, [outputs, inputs]);
    if (codes.dtype !== layout.codes.dtype || !sameShape(codes.shape, layout.codes.shape)) {
      throw new GraphError(
        `quantizedMatmul: codes are ${describe(codes)}, of ${kind} [${outputs},${inputs}] wanted is ${describe(layout.codes)}`,
      );
    }
    if (!sameShape(scales.shape, layout.scales.shape)) {
      throw new GraphError(
        `quantizedMatmul: scales are ${describe(scales)}, of ${kind} [${outputs},${inputs}] wanted is [${layout.scales.shape.join()}]`,
      );
    }
    const [from, to] = transposed ? [outputs, inputs] : [inputs, outputs];
    if (x.shape.length !== 2 || x.shape[1] !== from) {
      throw new GraphError(`quantizedMatmul takes [rows,${from}], got ${describe(x)}`);
    }
    return { dtype: 'float32', shape: [x.shape[0], to] };
  },
  gradient({ g, inputs: [, codes, scales], attributes, upstream, needs }) {
    if (!needs(0)) return [undefined, undefined, undefined];
    const transposed = !attributes.transposed;
    return [
      g.apply('quantizedMatmul', [upstream, codes, scales], { ...attributes, transposed }),
      undefined,
      undefined,
    ];
  },
  evaluate([x, codes, scales], { kind, outputs, inputs, transposed }, type) {
    const weights = dequantize(kind, codes.data, scales.data, [outputs, inputs]);
    const out = new Float64Array(sizeOf(type.shape));
    const [rows, columns] = type.shape;
    const inner = transposed ? outputs : inputs;
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        let total = 0;
        for (let i = 0; i < inner; i++) {
          const weight = transposed ? weights[i * inputs + column] : weights[column * inputs + i];
          total += x.data[row * inner + i] * weight;
        }
        out[row * columns + column] = total;
      }
    }
    return out;
  },
};
