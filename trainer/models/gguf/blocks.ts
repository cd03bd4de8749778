import { decodeNumbers, halfValue, STORED_BYTES, type StoredType } from '../files/stored-numbers.ts';

/** Writes the elements of the block at `at` to `out` from `to` on. */
type DecodeBlock = (bytes: Uint8Array, at: number, out: Float32Array, to: number) => void;

/** A storage format of ggml: blocks of so many elements in so many bytes. */
export interface BlockFormat {
  readonly elements: number;
  readonly bytes: number;
  /** Absent where each element is a number, see `stored-numbers.ts`. */
  readonly decode?: DecodeBlock;
}

/** Formats by ggml's type number, for errors those too that are not read. */
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
  return {
    elements: 32,
    bytes,
    decode: (block, at, out, to) => {
      const d = half(block, at);
      const m = minimum === undefined ? -0 : half(block, at + minimum);
      for (let i = 0; i < 32; i++) {
        const low = (block[at + quanta + (i & 15)] >> (i & 16 ? 4 : 0)) & 15;
        const fifth = high === undefined ? 0 : ((block[at + high + (i >> 3)] >> (i & 7)) & 1) << 4;
        out[to + i] = d * ((low | fifth) - zero) + m;
      }
    },
  };
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
const decodeParts =
  (quanta: number, high: number | null): DecodeBlock =>
  (bytes, at, out, to) => {
    const [scaleOfAll, minimumOfAll] = [half(bytes, at), half(bytes, at + 2)];
    for (let part = 0; part < 8; part++) {
      const [scale, minimum] = scaleAndMinimum(bytes, at + 4, part);
      const [d, m] = [scaleOfAll * scale, minimumOfAll * minimum];
      const first = at + quanta + 32 * (part >> 1);
      for (let i = 0; i < 32; i++) {
        const low = (bytes[first + i] >> (4 * (part & 1))) & 15;
        const fifth = high === null ? 0 : ((bytes[at + high + i] >> part) & 1) << 4;
        out[to + 32 * part + i] = d * (low | fifth) - m;
      }
    }
  };

function decodeQ6K(bytes: Uint8Array, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at + 208);
  for (let element = 0; element < 256; element++) {
    const [side, within] = [element >> 7, element & 127];
    const low = (bytes[at + 64 * side + (within & 63)] >> (4 * (within >> 6))) & 15;
    const high = (bytes[at + 128 + 32 * side + (within & 31)] >> (2 * (within >> 5))) & 3;
    const scale = Math.fround(d * signed(bytes[at + 192 + (element >> 4)]));
    out[to + element] = scale * ((low | (high << 4)) - 32);
  }
}

function decodeQ8(bytes: Uint8Array, at: number, out: Float32Array, to: number): void {
  const d = half(bytes, at);
  for (let i = 0; i < 32; i++) out[to + i] = d * signed(bytes[at + 2 + i]);
}

/**
 * Storage formats that are read, by ggml's names (`ggml-quants.c`). Every product is exact in double precision and is rounded
 * once when it is stored, which gives the float32 of llama.cpp and of Python's `gguf` to the bit.
 */
export const BLOCK_FORMATS = {
  F32: { elements: 1, bytes: STORED_BYTES.F32 },
  F16: { elements: 1, bytes: STORED_BYTES.F16 },
  BF16: { elements: 1, bytes: STORED_BYTES.BF16 },
  Q4_0: blockOf32(18, 8),
  Q4_1: blockOf32(20, 0, { minimum: 2 }),
  Q5_0: blockOf32(22, 16, { high: 2 }),
  Q5_1: blockOf32(24, 0, { minimum: 2, high: 4 }),
  Q8_0: { elements: 32, bytes: 34, decode: decodeQ8 },
  Q4_K: { elements: 256, bytes: 144, decode: decodeParts(16, null) },
  Q5_K: { elements: 256, bytes: 176, decode: decodeParts(48, 16) },
  Q6_K: { elements: 256, bytes: 210, decode: decodeQ6K },
} as const satisfies Readonly<Record<string, BlockFormat>>;

export type BlockType = keyof typeof BLOCK_FORMATS;

/** Whole blocks as as many float32 as `out` has. */
export function decodeBlocks(bytes: Uint8Array, type: BlockType, out: Float32Array): void {
  if (type in STORED_BYTES) {
    decodeNumbers(bytes, type as StoredType, out);
    return;
  }
  const format: BlockFormat = BLOCK_FORMATS[type];
  for (let at = 0, to = 0; to < out.length; at += format.bytes, to += format.elements)
    format.decode!(bytes, at, out, to);
}
