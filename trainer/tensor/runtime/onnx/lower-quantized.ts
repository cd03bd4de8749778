import { NF4_LEVELS, QUANTIZED_BLOCK } from '../../graph/operations/blockwise.ts';
import type { QuantizedMatmulAttributes } from '../../graph/operations/products.ts';
import type { Tensor } from '../../graph/tensor.ts';
import { MICROSOFT, type ModelBuilder } from './model-builder.ts';
import { TENSOR_TYPE } from './model-proto.ts';

/** MatMulBnb4's number for NF4. */
const NORMAL_FLOAT = 1;
const BYTE_VALUES = 256;

/**
 * NF4 has a kernel that unpacks and multiplies in one, with the transpose alone (ONNX Runtime 1.30 leaves `transB` out of account
 * on the processor). Everything else is unpacked to float32 before a product. Unpacking waits for x: otherwise ONNX Runtime would
 * unpack all weights at the beginning, and keep them from the forward to the backward pass.
 */
export function lowerQuantizedMatmul(
  context: ModelBuilder,
  node: Tensor,
  [x, codes, scales]: readonly string[],
  result: string,
): void {
  const { kind, outputs, inputs, transposed } = node.attributes as QuantizedMatmulAttributes;
  if (kind === 'nf4' && !transposed) {
    const attributes = { K: inputs, N: outputs, block_size: QUANTIZED_BLOCK, quant_type: NORMAL_FLOAT };
    context.emit('MatMulBnb4', [x, codes, scales], { domain: MICROSOFT, attributes }, result);
    return;
  }
  const unpack = kind === 'int8' ? unpackInt8 : unpackNormalFloat;
  const weights = unpack(context, { codes, scales, waitFor: x, shape: [outputs, inputs] });
  context.emit('Gemm', [x, weights], { attributes: { transB: Number(!transposed) } }, result);
}

interface Packed {
  readonly codes: string;
  readonly scales: string;
  /** Value that must exist first. */
  readonly waitFor: string;
  readonly shape: readonly [outputs: number, inputs: number];
}

function unpackInt8(context: ModelBuilder, { codes, scales, waitFor }: Packed): string {
  const waiting = context.emit('Add', [scales, zeroAfter(context, waitFor, 'float32')]);
  const attributes = { axis: 1, block_size: QUANTIZED_BLOCK };
  return context.emit('DequantizeLinear', [codes, waiting], { attributes });
}

/** A byte is looked up in the pairs of levels that its two codes are. */
function unpackNormalFloat(context: ModelBuilder, { codes, scales, waitFor, shape }: Packed): string {
  const pairs = new Float32Array(2 * BYTE_VALUES);
  for (let byte = 0; byte < BYTE_VALUES; byte++) {
    pairs[2 * byte] = NF4_LEVELS[byte >> 4];
    pairs[2 * byte + 1] = NF4_LEVELS[byte & 0xf];
  }
  const waiting = context.emit('BitwiseOr', [codes, zeroAfter(context, waitFor, 'uint8')]);
  const indices = context.emit('Cast', [waiting], { attributes: { to: TENSOR_TYPE.int32 } });
  const levels = context.emit('Gather', [context.floats(pairs, [BYTE_VALUES, 2]), indices]);
  const blocks = context.reshape(levels, [-1, QUANTIZED_BLOCK]);
  const scaled = context.emit('Mul', [blocks, context.reshape(scales, [-1, 1])]);
  return context.reshape(scaled, shape);
}

/** Zero of a type, known once x is. Nothing is less than itself, NaN included. */
function zeroAfter(context: ModelBuilder, x: string, type: 'float32' | 'uint8'): string {
  const entry = context.emit('Slice', [context.reshape(x, [-1]), context.int64([0]), context.int64([1])]);
  return context.emit('Cast', [context.emit('Less', [entry, entry])], {
    attributes: { to: TENSOR_TYPE[type] },
  });
}
