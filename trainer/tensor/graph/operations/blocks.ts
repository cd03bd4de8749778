import { describe, GraphError, type Shape, sameShape, sizeOf, type TensorType } from '../tensor.ts';
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
export type BlockMatmulAttributes = BlockAttributes & FrozenProductAttributes;

/** A product with a frozen matrix [outputs, inputs], that of its transpose if `transposed` is false. */
type FrozenProductAttributes = Readonly<{ outputs: number; inputs: number; transposed: boolean }>;

/**
 * x·Wᵀ, [rows, inputs] × [outputs, inputs] → [rows, outputs]. W is frozen, so only x has a gradient, dy·W. Inputs: x, and
 * what stores W.
 */
function frozenProduct<A extends FrozenProductAttributes>(
  name: string,
  storedTypes: (attributes: A) => readonly TensorType[],
): Operation<A> {
  return {
    name,
    infer([x, ...parts], attributes) {
      const { outputs, inputs, transposed } = attributes;
      expectFloat(name, x);
      expectStored(name, parts, storedTypes(attributes), [outputs, inputs]);
      const [from, to] = transposed ? [outputs, inputs] : [inputs, outputs];
      if (x.shape.length !== 2 || x.shape[1] !== from) {
        throw new GraphError(`${name} takes [rows,${from}], got ${describe(x)}`);
      }
      return { dtype: 'float32', shape: [x.shape[0], to] };
    },
    gradient({ g, inputs: [, ...parts], attributes, upstream, needs }) {
      const transposed = !attributes.transposed;
      const dx = needs(0) ? g.apply(name, [upstream, ...parts], { ...attributes, transposed }) : undefined;
      return [dx, ...parts.map(() => undefined)];
    },
  };
}

/**
 * A product with W in blocks: codes, scales, and minimums if the storage has them. A runtime that keeps W packed may round
 * each block of x to 8 bits, as llama.cpp does.
 */
export const blockMatmul = frozenProduct<BlockMatmulAttributes>('blockMatmul', blockTypes);

/**
 * Rows of a matrix in blocks: ids [n] → [n, inputs]. No gradient. Inputs: ids, then those of {@link blockMatmul} after
 * x.
 */
export const blockRows: Operation<BlockAttributes> = {
  name: 'blockRows',
  infer([ids, ...parts], attributes) {
    expectIds('blockRows', ids);
    expectStored('blockRows', parts, blockTypes(attributes), [attributes.outputs, attributes.inputs]);
    if (ids.shape.length !== 1) throw new GraphError(`blockRows takes ids [n], got ${describe(ids)}`);
    return { dtype: 'float32', shape: [ids.shape[0], attributes.inputs] };
  },
};

function blockTypes({ outputs, inputs, ...storage }: BlockAttributes): readonly TensorType[] {
  const { codes, scales } = blockLayout(storage, [outputs, inputs]);
  const float = { dtype: 'float32', shape: scales } as const;
  return [{ dtype: 'uint8', shape: codes }, float, ...(storage.minimums ? [float] : [])];
}

function expectStored(
  where: string,
  parts: readonly TensorType[],
  wanted: readonly TensorType[],
  shape: Shape,
): void {
  const fits = (type: TensorType, i: number) =>
    parts[i]?.dtype === type.dtype && sameShape(parts[i].shape, type.shape);
  if (parts.length === wanted.length && wanted.every(fits)) return;
  const list = (types: readonly TensorType[]) => types.map(describe).join(', ');
  throw new GraphError(`${where}: [${shape.join()}] is stored as ${list(wanted)}, got ${list(parts)}`);
}

/** Weights in blocks of {@link QUANTIZED_BLOCK}: 8 bits by the largest of a block, or the 4 bits of QLoRA's NormalFloat. */
export const QUANTIZATIONS = ['int8', 'nf4'] as const;
export type Quantization = (typeof QUANTIZATIONS)[number];

/** Weights that share a scale, as in bitsandbytes. */
export const QUANTIZED_BLOCK = 64;

const INT8_MOST = 127;

/** Quantiles of a normal distribution (Dettmers et al., 2023: QLoRA, appendix E). */
export const NF4_LEVELS = Float32Array.of(
  -1,
  -0.6961928009986877,
  -0.5250730514526367,
  -0.39491748809814453,
  -0.28444138169288635,
  -0.18477343022823334,
  -0.09105003625154495,
  0,
  0.07958029955625534,
  0.16093020141124725,
  0.24611230194568634,
  0.33791524171829224,
  0.44070982933044434,
  0.5626170039176941,
  0.7229568362236023,
  1,
);
/** Midpoints between levels: larger values round to the next level. */
const NF4_BORDERS = NF4_LEVELS.slice(1).map((level, i) => (level + NF4_LEVELS[i]) / 2);

/** Layout of a quantized matrix [outputs, inputs]. */
export interface QuantizedLayout {
  readonly codes: { readonly dtype: 'int8' | 'uint8'; readonly shape: Shape };
  readonly scales: { readonly shape: Shape };
}

/**
 * int8 has a scale for each block of a row; nf4 has one for each block of the whole matrix, and two codes a byte.
 * @throws GraphError for a matrix that nf4 cannot cut into blocks
 */
export function quantizedLayout(kind: Quantization, [outputs, inputs]: Shape): QuantizedLayout {
  if (kind === 'int8') {
    const blocks = Math.ceil(inputs / QUANTIZED_BLOCK);
    return {
      codes: { dtype: 'int8', shape: [outputs, inputs] },
      scales: { shape: [outputs, blocks] },
    };
  }
  const count = outputs * inputs;
  if (count % QUANTIZED_BLOCK !== 0) {
    throw new GraphError(
      `nf4 takes blocks of ${QUANTIZED_BLOCK} weights, [${outputs},${inputs}] is ${count}: use int8`,
    );
  }
  return {
    codes: { dtype: 'uint8', shape: [count / 2] },
    scales: { shape: [count / QUANTIZED_BLOCK] },
  };
}

/**
 * Writes the nearest codes of a matrix [outputs, inputs].
 * @throws GraphError where a weight is not finite
 */
export function quantize(
  kind: Quantization,
  weights: Float32Array,
  inputs: number,
  codes: Int8Array | Uint8Array,
  scales: Float32Array,
): void {
  const rowLength = kind === 'int8' ? inputs : weights.length;
  let block = 0;
  for (let row = 0; row < weights.length; row += rowLength) {
    for (let start = row; start < row + rowLength; start += QUANTIZED_BLOCK) {
      const end = Math.min(start + QUANTIZED_BLOCK, row + rowLength);
      let largest = 0;
      for (let i = start; i < end; i++) largest = Math.max(largest, Math.abs(weights[i]));
      if (!Number.isFinite(largest)) throw new GraphError('a weight that is not finite cannot be quantized');
      if (kind === 'int8') int8Block(weights, start, end, largest, codes);
      else nf4Block(weights, start, end, largest, codes);
      scales[block++] = kind === 'int8' ? largest / INT8_MOST : largest;
    }
  }
}

function int8Block(
  weights: Float32Array,
  start: number,
  end: number,
  largest: number,
  codes: Int8Array | Uint8Array,
) {
  const factor = largest === 0 ? 0 : INT8_MOST / largest;
  for (let i = start; i < end; i++) codes[i] = Math.round(weights[i] * factor);
}

/** The first of two codes is in the high bits, as bitsandbytes packs them. */
function nf4Block(
  weights: Float32Array,
  start: number,
  end: number,
  largest: number,
  codes: Int8Array | Uint8Array,
) {
  const factor = largest === 0 ? 0 : 1 / largest;
  for (let i = start; i < end; i++) {
    const x = weights[i] * factor;
    let code = x > NF4_BORDERS[7] ? 8 : 0;
    if (x > NF4_BORDERS[code + 3]) code += 4;
    if (x > NF4_BORDERS[code + 1]) code += 2;
    if (x > NF4_BORDERS[code]) code += 1;
    codes[i >> 1] = i % 2 === 0 ? code << 4 : (codes[i >> 1] & 0xf0) | code;
  }
}

/** Unpacks the codes to the matrix. */
export function dequantize(
  kind: Quantization,
  codes: ArrayLike<number>,
  scales: ArrayLike<number>,
  [outputs, inputs]: Shape,
): Float32Array {
  const out = new Float32Array(sizeOf([outputs, inputs]));
  const blocks = Math.ceil(inputs / QUANTIZED_BLOCK);
  for (let i = 0; i < out.length; i++) {
    if (kind === 'int8') {
      const row = Math.floor(i / inputs);
      out[i] = codes[i] * scales[row * blocks + Math.floor((i - row * inputs) / QUANTIZED_BLOCK)];
    } else {
      const code = i % 2 === 0 ? codes[i >> 1] >> 4 : codes[i >> 1] & 0xf;
      out[i] = NF4_LEVELS[code] * scales[Math.floor(i / QUANTIZED_BLOCK)];
    }
  }
  return out;
}

export type QuantizedMatmulAttributes = FrozenProductAttributes & Readonly<{ kind: Quantization }>;

/** A product with a quantized W, its codes and scales, computed in float32. */
export const quantizedMatmul = frozenProduct<QuantizedMatmulAttributes>(
  'quantizedMatmul',
  ({ kind, outputs, inputs }) => {
    const { codes, scales } = quantizedLayout(kind, [outputs, inputs]);
    return [codes, { dtype: 'float32', ...scales }];
  },
);
