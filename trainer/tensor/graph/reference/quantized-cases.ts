import { Random } from '../../../../shared/random.ts';
import { type Quantization, quantize, quantizedLayout } from '../operations/blockwise.ts';
import { allocate, sizeOf } from '../tensor.ts';
import type { CaseInput, OperationCase } from './cases.ts';

const random = Random.fromSeed(20_241);
const drawn = (length: number) => Float32Array.from({ length }, () => random.float() * 2 - 1);
const floats = (shape: readonly number[], values: Float32Array): CaseInput => ({
  dtype: 'float32',
  shape,
  values: Array.from(values),
});

function quantizedCase(
  kind: Quantization,
  outputs: number,
  inputs: number,
  transposed: boolean,
): OperationCase {
  const layout = quantizedLayout(kind, [outputs, inputs]);
  const { dtype, shape } = layout.codes;
  const codes = allocate(dtype, sizeOf(shape)) as Int8Array | Uint8Array;
  const scales = new Float32Array(sizeOf(layout.scales.shape));
  quantize(kind, drawn(outputs * inputs), inputs, codes, scales);
  const rows = 5;
  const from = transposed ? outputs : inputs;
  return {
    operation: 'quantizedMatmul',
    title: `of ${kind} [${outputs}, ${inputs}]${transposed ? ', transposed' : ''}`,
    inputs: {
      x: floats([rows, from], drawn(rows * from)),
      codes: { dtype, shape, values: Array.from(codes) },
      scales: floats(layout.scales.shape, scales),
    },
    differentiate: ['x'],
    build: (g, { x, codes, scales }) =>
      g.apply('quantizedMatmul', [x, codes, scales], { kind, outputs, inputs, transposed }),
  };
}

/** Products with quantized weights, for runtimes that have them. */
export const quantizedCases: readonly OperationCase[] = (['int8', 'nf4'] as const).flatMap(kind => [
  quantizedCase(kind, 6, 128, false),
  quantizedCase(kind, 72, 80, false),
  quantizedCase(kind, 72, 80, true),
  quantizedCase(kind, 16, 8, false),
]);
