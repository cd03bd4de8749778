import {
  type BlockAttributes,
  type BlockMatmulAttributes,
  type BlockStorage,
  centerOf,
} from '../../graph/operations/blocks.ts';
import type { Tensor } from '../../graph/tensor.ts';
import { MICROSOFT, type ModelBuilder } from './model-builder.ts';
import { TENSOR_TYPE } from './model-proto.ts';

/** MatMulNBits rounds each block of x to 8 bits and multiplies integers. */
const INTEGER_PRODUCTS = 4;
const BYTE_VALUES = 256;

/**
 * Where the weight is a constant, ONNX Runtime packs its codes once and multiplies integers; minimums are multiplied with the
 * sums of x over blocks. Else the matrix is unpacked to float32 before the product.
 */
export function lowerBlockMatmul(
  context: ModelBuilder,
  node: Tensor,
  [x, codes, scales, minimums]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as BlockMatmulAttributes;
  const { bits, block, outputs, inputs, transposed } = attributes;
  if (transposed || !context.isConstant(node.inputs[1])) {
    // Unpacking waits for x; otherwise all matrices would be unpacked at the start and kept until the backward pass.
    const waiting = context.emit('Add', [scales, context.zeroAfter(x)]);
    const weights = unpack(context, attributes, [codes, waiting, minimums], [outputs, inputs]);
    context.emit('Gemm', [x, weights], { attributes: { transB: Number(!transposed) } }, result);
    return;
  }
  const settings = {
    domain: MICROSOFT,
    attributes: { K: inputs, N: outputs, bits, block_size: block, accuracy_level: INTEGER_PRODUCTS },
  };
  if (minimums === undefined) {
    context.emit('MatMulNBits', [x, codes, scales], settings, result);
    return;
  }
  const product = context.emit('MatMulNBits', [x, codes, scales], settings);
  const sums = context.shared(`sums of ${block} ${x}`, () => {
    const blocks = context.reshape(x, [-1, inputs / block, block]);
    return context.emit('ReduceSum', [blocks, context.int64([2])], { attributes: { keepdims: 0 } });
  });
  context.emit('Gemm', [sums, minimums, product], { attributes: { transB: 1 } }, result);
}

export function lowerBlockRows(
  context: ModelBuilder,
  node: Tensor,
  [ids, ...parts]: readonly string[],
  result: string,
): void {
  const attributes = node.attributes as BlockAttributes;
  const rows = parts.map(table => context.emit('Gather', [table, ids], { attributes: { axis: 0 } }));
  unpack(context, attributes, rows, [-1, attributes.inputs], result);
}

/** Float32 weights of rows in blocks. */
function unpack(
  context: ModelBuilder,
  { bits, block, minimums: hasMinimums }: BlockStorage,
  [codes, scales, minimums]: readonly string[],
  shape: readonly number[],
  result?: string,
): string {
  const levels = bits === 8 ? wholeLevels(context, codes) : pairedLevels(context, codes);
  const each = (values: string) => context.reshape(values, [-1, 1]);
  const scaled = context.emit('Mul', [context.reshape(levels, [-1, block]), each(scales)]);
  const added = hasMinimums ? context.emit('Add', [scaled, each(minimums)]) : scaled;
  return context.reshape(added, shape, result);
}

function wholeLevels(context: ModelBuilder, codes: string): string {
  const numbers = context.emit('Cast', [codes], { attributes: { to: TENSOR_TYPE.float32 } });
  return context.emit('Sub', [numbers, context.float(centerOf(8))]);
}

/** Looks a byte up in a table of the pairs of levels of its two codes. */
function pairedLevels(context: ModelBuilder, codes: string): string {
  const pairs = new Float32Array(2 * BYTE_VALUES);
  for (let byte = 0; byte < BYTE_VALUES; byte++) {
    pairs[2 * byte] = (byte & 15) - centerOf(4);
    pairs[2 * byte + 1] = (byte >> 4) - centerOf(4);
  }
  const indices = context.emit('Cast', [codes], { attributes: { to: TENSOR_TYPE.int32 } });
  return context.emit('Gather', [context.floats(pairs, [BYTE_VALUES, 2]), indices]);
}
