/** Element types of stored tensors that can be read, with their bytes; all become float32. */
export const STORED_BYTES = { F32: 4, F16: 2, BF16: 2 } as const;
export type StoredType = keyof typeof STORED_BYTES;
/** Element types that can be written. */
export type WritableType = 'F32' | 'BF16';

/** Types that weights can be written in, as torch names them. */
export const WEIGHT_DTYPES = ['float32', 'bfloat16'] as const;
export type WeightDtype = (typeof WEIGHT_DTYPES)[number];
export const STORED_AS: Readonly<Record<WeightDtype, WritableType>> = { float32: 'F32', bfloat16: 'BF16' };

const HALF_VALUES = 2 ** 16;
/** The float32 of every half-precision number, once one has been read. */
let halves: Float32Array | null = null;

/** Converts stored bytes to as many float32 as `out` has. `bytes` starts at a multiple of the element's size. */
export function decodeNumbers(bytes: Uint8Array, type: StoredType, out: Float32Array): void {
  if (type === 'F32') {
    new Uint8Array(out.buffer, out.byteOffset, out.byteLength).set(bytes);
    return;
  }
  const half = new Uint16Array(bytes.buffer, bytes.byteOffset, out.length);
  if (type === 'BF16') {
    const bits = new Uint32Array(out.buffer, out.byteOffset, out.length);
    for (let i = 0; i < half.length; i++) bits[i] = half[i] << 16;
    return;
  }
  for (let i = 0; i < half.length; i++) out[i] = halfValue(half[i]);
}

/** The number of half precision with these 16 bits. */
export function halfValue(bits: number): number {
  halves ??= Float32Array.from({ length: HALF_VALUES }, (_, value) => halfToFloat(value));
  return halves[bits];
}

/** Writes numbers into the first bytes of `out`; bf16 rounds to nearest even. */
export function encodeNumbers(data: Float32Array, type: WritableType, out: Uint8Array): void {
  if (type === 'F32') {
    out.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return;
  }
  const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
  const half = new Uint16Array(out.buffer, out.byteOffset, data.length);
  for (let i = 0; i < bits.length; i++) half[i] = floatBitsToBfloat16(bits[i]);
}

function floatBitsToBfloat16(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

function halfToFloat(half: number): number {
  const sign = half & 0x8000 ? -1 : 1;
  const exponent = (half >>> 10) & 0x1f;
  const fraction = half & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
