import { describe, GraphError, type Shape, sameShape, type TensorType } from '../tensor.ts';
import { expectFloat, expectIds, type Operation } from './operation.ts';

/*
 * Frozen weights as published files store them: w = scale · (code − center) + minimum, where blocks of a row share a scale and,
 * in some formats, a minimum.
 */

/** Storage of a matrix [outputs, inputs]: unsigned codes of this many bits, in blocks of this many weights of a row. */
export interface BlockStorage {
  readonly bits: 4 | 8;
  readonly block: number;
  /** True if each block has a minimum. */
  readonly minimums: boolean;
}

/** The code of 0. */
export function centerOf(bits: number): number {
  return 2 ** (bits - 1);
}

/**
 * Shapes of codes and scales; two codes of 4 bits share a byte, the first in the low half (as MatMulNBits has them).
 * @throws GraphError where rows are not whole blocks
 */
export function blockLayout(
  { bits, block }: BlockStorage,
  [outputs, inputs]: Shape,
): { readonly codes: Shape; readonly scales: Shape } {
  if (inputs % block !== 0) {
    throw new GraphError(`rows of ${inputs} weights are no whole number of blocks of ${block}`);
  }
  const blocks = inputs / block;
  return { codes: [outputs, blocks, (block * bits) / 8], scales: [outputs, blocks] };
}

/** Unpacks codes to a row-major matrix of float32 or float64. */
export function unpackBlocks<T extends Float32Array | Float64Array>(
  { bits, block }: BlockStorage,
  [codes, scales, minimums]: readonly ArrayLike<number>[],
  out: T,
): T {
  const center = centerOf(bits);
  for (let i = 0; i < out.length; i++) {
    const code = bits === 8 ? codes[i] : (codes[i >> 1] >> (4 * (i & 1))) & 15;
    const at = Math.floor(i / block);
    out[i] = scales[at] * (code - center) + (minimums?.[at] ?? 0);
  }
  return out;
}

export type BlockAttributes = Readonly<BlockStorage & { outputs: number; inputs: number }>;
/** `transposed` multiplies by the matrix [outputs, inputs] itself instead of its transpose. */
export type BlockMatmulAttributes = BlockAttributes & Readonly<{ transposed: boolean }>;

/**
 * x·Wᵀ, [rows, inputs] × [outputs, inputs] → [rows, outputs], with W in blocks. A runtime that keeps W packed may round
 * each block of x to 8 bits, as llama.cpp does. W is frozen, so only x has a gradient, dy·W. Inputs: x, codes, scales,
 * and minimums if the storage has them.
 */
export const blockMatmul: Operation<BlockMatmulAttributes> = {
  name: 'blockMatmul',
  infer([x, ...parts], attributes) {
    const { outputs, inputs, transposed } = attributes;
    expectFloat('blockMatmul', x);
    expectBlocks('blockMatmul', parts, attributes);
    const [from, to] = transposed ? [outputs, inputs] : [inputs, outputs];
    if (x.shape.length !== 2 || x.shape[1] !== from) {
      throw new GraphError(`blockMatmul takes [rows,${from}], got ${describe(x)}`);
    }
    return { dtype: 'float32', shape: [x.shape[0], to] };
  },
  gradient({ g, inputs: [, ...parts], attributes, upstream, needs }) {
    const transposed = !attributes.transposed;
    const dx = needs(0)
      ? g.apply('blockMatmul', [upstream, ...parts], { ...attributes, transposed })
      : undefined;
    return [dx, ...parts.map(() => undefined)];
  },
};

/**
 * Rows of a matrix in blocks: ids [n] → [n, inputs]. No gradient. Inputs: ids, then those of {@link blockMatmul} after
 * x.
 */
export const blockRows: Operation<BlockAttributes> = {
  name: 'blockRows',
  infer([ids, ...parts], attributes) {
    expectIds('blockRows', ids);
    expectBlocks('blockRows', parts, attributes);
    if (ids.shape.length !== 1) throw new GraphError(`blockRows takes ids [n], got ${describe(ids)}`);
    return { dtype: 'float32', shape: [ids.shape[0], attributes.inputs] };
  },
};

function expectBlocks(where: string, parts: readonly TensorType[], attributes: BlockAttributes): void {
  const shape = [attributes.outputs, attributes.inputs];
  const { codes, scales } = blockLayout(attributes, shape);
  const wanted: readonly TensorType[] = [
    { dtype: 'uint8', shape: codes },
    { dtype: 'float32', shape: scales },
    ...(attributes.minimums ? [{ dtype: 'float32', shape: scales } as const] : []),
  ];
  const fits = (type: TensorType, i: number) =>
    parts[i]?.dtype === type.dtype && sameShape(parts[i].shape, type.shape);
  if (parts.length === wanted.length && wanted.every(fits)) return;
  const list = (types: readonly TensorType[]) => types.map(describe).join(', ');
  throw new GraphError(`${where}: [${shape.join()}] is stored as ${list(wanted)}, got ${list(parts)}`);
}
