/** Wire format of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), as far as our trackers write it. */
const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/** A message or text as a field. */
export function bytesField(number: number, bytes: Uint8Array): Uint8Array {
  return concat([key(number, BYTES), varint(bytes.length), bytes]);
}

export function textField(number: number, text: string): Uint8Array {
  return bytesField(number, new TextEncoder().encode(text));
}

/** A whole number from 0 to 2^53. */
export function varintField(number: number, value: number): Uint8Array {
  return concat([key(number, VARINT), varint(value)]);
}

export function doubleField(number: number, value: number): Uint8Array {
  return concat([key(number, FIXED64), view(8, v => v.setFloat64(0, value, true))]);
}

export function floatField(number: number, value: number): Uint8Array {
  return concat([key(number, FIXED32), view(4, v => v.setFloat32(0, value, true))]);
}

export function uint32(value: number): Uint8Array {
  return view(4, v => v.setUint32(0, value, true));
}

export function concat(parts: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(parts);
}

function key(number: number, wireType: number): Uint8Array {
  return varint(number * 8 + wireType);
}

function varint(value: number): Uint8Array {
  const out: number[] = [];
  let rest = value;
  while (rest > 127) {
    out.push((rest % 128) | 128);
    rest = Math.floor(rest / 128);
  }
  out.push(rest);
  return Uint8Array.from(out);
}

function view(bytes: number, write: (view: DataView) => void): Uint8Array {
  const out = new Uint8Array(bytes);
  write(new DataView(out.buffer));
  return out;
}
