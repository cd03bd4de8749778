/**
 * A text, or its pieces that stand one behind the other. A long text is best left in pieces until it is written:
 * one letter beyond Latin-1 makes a string twice as large and several times slower to encode, with all that it holds.
 */
export type TextChunks = string | readonly string[];

/** A UTF-16 unit takes at most this many bytes in UTF-8. */
export const MAX_BYTES_PER_UNIT = 3;
const SCRATCH_BYTES = 256 * 1024;

let scratch: Buffer | undefined;

/** Length in UTF-16 units. */
export function unitsOf(text: TextChunks): number {
  if (typeof text === 'string') return text.length;
  let units = 0;
  for (const piece of text) units += piece.length;
  return units;
}

/** Length in UTF-8. */
export function bytesOf(text: TextChunks): number {
  if (typeof text === 'string') return Buffer.byteLength(text);
  let bytes = 0;
  for (const piece of text) bytes += Buffer.byteLength(piece);
  return bytes;
}

/**
 * Writes a text in UTF-8 into a buffer that has room for it.
 * @returns where it ends
 */
export function writeText(buffer: Buffer, start: number, text: TextChunks): number {
  if (typeof text === 'string') return start + buffer.write(text, start);
  let end = start;
  for (const piece of text) end += buffer.write(piece, end);
  return end;
}

/**
 * A buffer of just what `write` writes, which returns where it ended.
 * @param bound most bytes it may write
 */
export function written(bound: number, write: (buffer: Buffer) => number): Buffer {
  if (bound > SCRATCH_BYTES) {
    const buffer = Buffer.allocUnsafe(bound);
    return buffer.subarray(0, write(buffer));
  }
  scratch ??= Buffer.allocUnsafeSlow(SCRATCH_BYTES);
  return Buffer.from(scratch.subarray(0, write(scratch)));
}

/** A text in UTF-8. */
export function encodeText(text: TextChunks): Buffer {
  return written(unitsOf(text) * MAX_BYTES_PER_UNIT, buffer => writeText(buffer, 0, text));
}
