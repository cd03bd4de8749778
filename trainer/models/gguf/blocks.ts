import { type BlockStorage, centerOf } from '../../tensor/graph/operations/blocks.ts';
import { decodeNumbers, halfValue, STORED_BYTES, type StoredType } from '../files/stored-numbers.ts';

/** Elements of blocks as integers and factors: element = scale · (code − zero) + minimum, the last two shared by parts. */
interface BlockParts {
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  /** Untouched by formats without minimums. */
  readonly minimums: Float32Array;
}

/** Writes the parts of the block at `at` to `parts`, from element `to` on. */
type SplitBlock = (bytes: Uint8Array, at: number, parts: BlockParts, to: number) => void;

/** Contents of a format's blocks. */
interface BlockCodes {
  /** Elements that share a scale. */
  readonly part: number;
  /** Bits of a code when it is stored separately. */
  readonly bits: 4 | 8;
  /** The code of 0. */
  readonly zero: number;
  readonly minimums: boolean;
  readonly split: SplitBlock;
}

/** A storage format of ggml: blocks of this many elements in this many bytes. */
interface BlockFormat {
  readonly elements: number;
  readonly bytes: number;
  /** Absent where each element is a number, see `stored-numbers.ts`. */
  readonly codes?: BlockCodes;
}

/** Formats by ggml's type number, for errors also those that are not supported. */
export const TYPE_NAMES: Readonly<Record<number, string>> = {
  ...{ 0: 'F32', 1: 'F16', 2: 'Q4_0', 3: 'Q4_1', 6: 'Q5_0', 7: 'Q5_1', 8: 'Q8_0', 9: 'Q8_1', 10: 'Q2_K' },
  ...{
    11: 'Q3_K',
    12: 'Q4_K',
    13: 'Q5_K',
    14: 'Q6_K',
    15: 'Q8_K',
    16: 'IQ2_XXS',
    17: 'IQ2_XS',
    18: 'IQ3_XXS',
  },
  ...{ 19: 'IQ1_S', 20: 'IQ4_NL', 21: 'IQ3_S', 22: 'IQ2_S', 23: 'IQ4_XS', 24: 'I8', 25: 'I16', 26: 'I32' },
  ...{ 27: 'I64', 28: 'F64', 29: 'IQ1_M', 30: 'BF16', 34: 'TQ1_0', 35: 'TQ2_0', 39: 'MXFP4', 40: 'NVFP4' },
};

const half = (bytes: Uint8Array, at: number): number => halfValue(bytes[at] | (bytes[at + 1] << 8));
const signed = (byte: number): number => (byte << 24) >> 24;

/**
 * Formats with blocks of 32: a scale, where `minimum` says a minimum, where `high` says 32 fifth bits, then the low four bits of
 * elements 0 to 15 and in the same bytes those of 16 to 31.
 */
function blockOf32(
  bytes: number,
  zero: number,
  { minimum, high }: { readonly minimum?: number; readonly high?: number } = {},
): BlockFormat {
  const quanta = bytes - 16;
  const split: SplitBlock = (block, at, { codes, scales, minimums }, to) => {
    scales[to >> 5] = half(block, at);
    if (minimum !== undefined) minimums[to >> 5] = half(block, at + minimum);
    for (let i = 0; i < 32; i++) {
      const low = (block[at + quanta + (i & 15)] >> (i & 16 ? 4 : 0)) & 15;
      const fifth = high === undefined ? 0 : ((block[at + high + (i >> 3)] >> (i & 7)) & 1) << 4;
      codes[to + i] = low | fifth;
    }
  };
  const bits = high === undefined ? 4 : 8;
  return { elements: 32, bytes, codes: { part: 32, bits, zero, minimums: minimum !== undefined, split } };
}

/** Scale and minimum of 32 elements, 6 bits each, of eight such parts packed into 12 bytes. */
function scaleAndMinimum(bytes: Uint8Array, at: number, part: number): [scale: number, minimum: number] {
  if (part < 4) return [bytes[at + part] & 63, bytes[at + part + 4] & 63];
  const packed = bytes[at + part + 4];
  return [
    (packed & 15) | ((bytes[at + part - 4] >> 2) & 0x30),
    (packed >> 4) | ((bytes[at + part] >> 2) & 0x30),
  ];
}

/** Q4_K and Q5_K: eight parts of 32; byte i of pair p holds element i of part 2p (low) and of part 2p + 1 (high). */
const splitParts =
  (quanta: number, high: number | null): SplitBlock =>
  (bytes, at, { codes, scales, minimums }, to) => {
    const [scaleOfAll, minimumOfAll] = [half(bytes, at), half(bytes, at + 2)];
    for (let part = 0; part < 8; part++) {
      const [scale, minimum] = scaleAndMinimum(bytes, at + 4, part);
      scales[(to >> 5) + part] = scaleOfAll * scale;
      minimums[(to >> 5) + part] = -(minimumOfAll * minimum);
      const first = at + quanta + 32 * (part >> 1);
      for (let i = 0; i < 32; i++) {
        const low = (bytes[first + i] >> (4 * (part & 1))) & 15;
        const fifth = high === null ? 0 : ((bytes[at + high + i] >> part) & 1) << 4;
        codes[to + 32 * part + i] = low | fifth;
      }
    }
  };

const splitQ6K: SplitBlock = (bytes, at, { codes, scales }, to) => {
  const d = half(bytes, at + 208);
  for (let part = 0; part < 16; part++) scales[(to >> 4) + part] = d * signed(bytes[at + 192 + part]);
  for (let element = 0; element < 256; element++) {
    const [side, within] = [element >> 7, element & 127];
    const low = (bytes[at + 64 * side + (within & 63)] >> (4 * (within >> 6))) & 15;
    const high = (bytes[at + 128 + 32 * side + (within & 31)] >> (2 * (within >> 5))) & 3;
    codes[to + element] = low | (high << 4);
  }
};

const splitQ8: SplitBlock = (bytes, at, { codes, scales }, to) => {
  scales[to >> 5] = half(bytes, at);
  for (let i = 0; i < 32; i++) codes[to + i] = bytes[at + 2 + i] ^ 0x80;
};

const inParts = (bits: 4 | 8, split: SplitBlock) => ({ part: 32, bits, zero: 0, minimums: true, split });

/**
 * Supported storage formats, by ggml's names (`ggml-quants.c`). Every product is exact in double precision and rounded
 * once when it is stored, which gives exactly the float32 values of llama.cpp and of Python's `gguf`.
 */
export const BLOCK_FORMATS = {
  F32: { elements: 1, bytes: STORED_BYTES.F32 },
  F16: { elements: 1, bytes: STORED_BYTES.F16 },
  BF16: { elements: 1, bytes: STORED_BYTES.BF16 },
  Q4_0: blockOf32(18, 8),
  Q4_1: blockOf32(20, 0, { minimum: 2 }),
  Q5_0: blockOf32(22, 16, { high: 2 }),
  Q5_1: blockOf32(24, 0, { minimum: 2, high: 4 }),
  Q8_0: {
    elements: 32,
    bytes: 34,
    codes: { part: 32, bits: 8, zero: 128, minimums: false, split: splitQ8 },
  },
  Q4_K: { elements: 256, bytes: 144, codes: inParts(4, splitParts(16, null)) },
  Q5_K: { elements: 256, bytes: 176, codes: inParts(8, splitParts(48, 16)) },
  Q6_K: {
    elements: 256,
    bytes: 210,
    codes: { part: 16, bits: 8, zero: 32, minimums: false, split: splitQ6K },
  },
} as const satisfies Readonly<Record<string, BlockFormat>>;

export type BlockType = keyof typeof BLOCK_FORMATS;

const MAX_ELEMENTS = 256;
const LEAST_PART = 16;
const scratch: BlockParts = {
  codes: new Uint8Array(MAX_ELEMENTS),
  scales: new Float32Array(MAX_ELEMENTS / LEAST_PART),
  minimums: new Float32Array(MAX_ELEMENTS / LEAST_PART),
};

/** Decodes whole blocks into `out`. */
export function decodeBlocks(bytes: Uint8Array, type: BlockType, out: Float32Array): void {
  if (type in STORED_BYTES) {
    decodeNumbers(bytes, type as StoredType, out);
    return;
  }
  const format: BlockFormat = BLOCK_FORMATS[type];
  const { part, zero, minimums: hasMinimums, split } = format.codes!;
  const { codes, scales, minimums } = scratch;
  for (let at = 0, to = 0; to < out.length; at += format.bytes, to += format.elements) {
    split(bytes, at, scratch, 0);
    for (let p = 0, first = 0; first < format.elements; p++, first += part) {
      const scale = scales[p];
      // Adding it changes nothing, not even the sign of a zero.
      const minimum = hasMinimums ? minimums[p] : -0;
      for (let i = first; i < first + part; i++) out[to + i] = scale * (codes[i] - zero) + minimum;
    }
  }
}

/** Storage in memory of a format's weights; null where each element is a number. */
export function storageOf(type: BlockType): BlockStorage | null {
  const { codes }: BlockFormat = BLOCK_FORMATS[type];
  return codes === undefined ? null : { bits: codes.bits, block: codes.part, minimums: codes.minimums };
}

/** Weights of whole blocks in the form of {@link storageOf}. */
export interface StoredBlocks {
  readonly codes: Uint8Array;
  readonly scales: Float32Array;
  /** Null for a format without. */
  readonly minimums: Float32Array | null;
}

/**
 * Whole blocks as codes around the center of their bits. The numbers stay the same, except for one rounding of minimums
 * where codes of 4 bits move to their center.
 */
export function storeBlocks(
  bytes: Uint8Array,
  type: BlockType,
  { codes, scales, minimums }: StoredBlocks,
): void {
  const format: BlockFormat = BLOCK_FORMATS[type];
  const { part, bits, zero, split } = format.codes!;
  const shift = bits === 8 ? centerOf(8) - zero : 0;
  const moved = bits === 8 ? 0 : centerOf(4) - zero;
  const parts = format.elements / part;
  const count = (codes.length * 8) / bits / format.elements;
  for (let block = 0; block < count; block++) {
    split(bytes, block * format.bytes, scratch, 0);
    for (let p = 0; p < parts; p++) {
      scales[block * parts + p] = scratch.scales[p];
      if (minimums !== null) minimums[block * parts + p] = scratch.minimums[p] + moved * scratch.scales[p];
    }
    const first = block * format.elements;
    for (let i = 0; i < format.elements; i++) {
      if (bits === 8) codes[first + i] = scratch.codes[i] + shift;
      else if (i % 2 === 1) codes[(first + i) >> 1] = scratch.codes[i - 1] | (scratch.codes[i] << 4);
    }
  }
}
