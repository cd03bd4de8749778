import { GraphError, type Shape, sizeOf } from '../tensor.ts';

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
