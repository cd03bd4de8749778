import { existsSync } from 'node:fs';

export type Value = string | number | boolean | bigint | readonly string[] | Int32Array | Float32Array;

/** A tensor to write: ggml's type number and the stored bytes. */
export interface TensorBytes {
  readonly name: string;
  /** Outermost dimension first. */
  readonly shape: readonly number[];
  readonly type: number;
  readonly bytes: Uint8Array;
  /** Offset in the data; behind the tensor before when absent. */
  readonly offset?: number;
}

const u32 = (value: number): Buffer => {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
};
export const u64 = (value: number | bigint): Buffer => {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
};
export const text = (value: string): Buffer =>
  Buffer.concat([u64(Buffer.byteLength(value)), Buffer.from(value)]);

function valueBytes(value: Value): Buffer {
  if (typeof value === 'string') return Buffer.concat([u32(8), text(value)]);
  if (typeof value === 'boolean') return Buffer.from([7, 0, 0, 0, value ? 1 : 0]);
  if (typeof value === 'bigint') return Buffer.concat([u32(10), u64(value)]);
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(8);
    bytes.writeUInt32LE(Number.isInteger(value) ? 4 : 6);
    if (Number.isInteger(value)) bytes.writeUInt32LE(value, 4);
    else bytes.writeFloatLE(value, 4);
    return bytes;
  }
  if (value instanceof Int32Array || value instanceof Float32Array) {
    const kind = value instanceof Int32Array ? 5 : 6;
    const numbers = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return Buffer.concat([u32(9), u32(kind), u64(value.length), numbers]);
  }
  return Buffer.concat([u32(9), u32(8), u64(value.length), ...value.map(text)]);
}

/** The bytes of a GGUF file of version 3. */
export function ggufBytes(
  metadata: Readonly<Record<string, Value>>,
  tensors: readonly TensorBytes[] = [],
): Buffer {
  const parts = [Buffer.from('GGUF'), u32(3), u64(tensors.length), u64(Object.keys(metadata).length)];
  for (const [key, value] of Object.entries(metadata)) parts.push(text(key), valueBytes(value));
  let next = 0;
  const data: Buffer[] = [];
  for (const { name, shape, type, bytes, offset = next } of tensors) {
    parts.push(text(name), u32(shape.length), ...[...shape].reverse().map(u64), u32(type), u64(offset));
    const padded = Buffer.alloc(Math.ceil(bytes.length / 32) * 32);
    padded.set(bytes);
    data.push(padded);
    next += padded.length;
  }
  const head = Buffer.concat(parts);
  return Buffer.concat([head, Buffer.alloc((32 - (head.length % 32)) % 32), ...data]);
}

/** Why tests of the published model are skipped; false where `npm run model:smollm2` has fetched it. */
export const SMOLLM2 = process.env.RAGEN_TEST_SMOLLM2 ?? '';
export const lacksSmollm2: string | false =
  !existsSync(SMOLLM2) && 'needs SmolLM2: RAGEN_TEST_SMOLLM2=$(npm run -s model:smollm2)';
