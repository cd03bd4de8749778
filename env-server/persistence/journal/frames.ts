import { crc32 } from 'node:zlib';
import type { Json } from '../../../shared/json.ts';

/**
 * Frames of the journal. All numbers are little-endian.
 *
 * | bytes | content |
 * |---|---|
 * | 1 | `0x1e`, the record separator of RFC 7464 |
 * | 4 | length of the payload in bytes, at most {@link MAX_PAYLOAD_BYTES} |
 * | 4 | CRC-32 of the payload, with the length as its initial value, so that it covers both |
 * | … | payload: one character for the kind, session id, space, number of the record, and, after a space, JSON |
 *
 * JSON text has no control characters, so a payload holds no `0x1e`. The highest byte of a permitted length is one, so
 * no client can send text that looks like a frame: a reader that meets damage finds the next real frame.
 */

export const SEPARATOR = 0x1e;
export const HEADER_BYTES = 9;
export const MAX_PAYLOAD_BYTES = 64 * 1024 * 1024;
const MAX_NUMBER_DIGITS = 16;
const SPACE = 0x20;
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const DELETE = 0x7f;
const MIN_BUFFER_BYTES = 64 * 1024;
/** Memory of a larger turn is given back. */
const MAX_KEPT_BYTES = 1024 * 1024;
const MAX_BYTES_PER_CHARACTER = 3;
/** Up to this length a loop is faster than a call into zlib. */
const SHORT_BYTES = 256;
const MAX_PLAIN_TEXT_LENGTH = 64;

/** CRC-32 (IEEE 802.3) of each byte. */
const CRC_TABLE = Int32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  return crc;
});

/** A record as a frame holds it. */
export interface Frame {
  /** One character. */
  readonly kind: string;
  readonly sessionId: string;
  readonly n: number;
  readonly body: Json | undefined;
}

/** The frame would exceed {@link MAX_PAYLOAD_BYTES}, or its text is longer than a string can be. */
export class RecordTooLarge extends RangeError {
  override readonly name = 'RecordTooLarge';
}

/** Frames that wait to be written, one after the other in one piece of memory. */
export class FrameBuffer {
  #bytes = Buffer.allocUnsafe(MIN_BUFFER_BYTES);
  #end = 0;

  get length(): number {
    return this.#end;
  }

  /** The frames; valid until the next change. */
  get bytes(): Buffer {
    return this.#bytes.subarray(0, this.#end);
  }

  clear(): void {
    this.#end = 0;
    if (this.#bytes.length > MAX_KEPT_BYTES) this.#bytes = Buffer.allocUnsafe(MIN_BUFFER_BYTES);
  }

  /** Puts frames before all others. */
  prepend(frames: readonly Buffer[]): void {
    const bytes = Buffer.concat([...frames, this.bytes]);
    this.#end = bytes.length;
    this.#bytes = bytes;
  }

  /**
   * Appends a frame; all or nothing.
   * @param kind code of an ASCII character
   * @param sessionId ASCII without a space
   * @throws RecordTooLarge
   */
  add(kind: number, sessionId: string, n: number, body: Json | undefined): void {
    const json = body === undefined ? '' : jsonOf(body);
    // Before it is copied: memory is reserved for the longest text that it can be.
    if (json.length > MAX_PAYLOAD_BYTES) throw tooLarge(sessionId, json.length);
    const start = this.#end;
    this.#reserve(
      HEADER_BYTES + 3 + sessionId.length + MAX_NUMBER_DIGITS + json.length * MAX_BYTES_PER_CHARACTER,
    );
    const bytes = this.#bytes;
    const from = start + HEADER_BYTES;
    let to = from;
    bytes[to++] = kind;
    to = writeText(bytes, to, sessionId);
    bytes[to++] = SPACE;
    to = writeText(bytes, to, String(n));
    if (json !== '') {
      bytes[to++] = SPACE;
      to = writeText(bytes, to, json);
    }
    const length = to - from;
    if (length > MAX_PAYLOAD_BYTES) throw tooLarge(sessionId, length);
    bytes[start] = SEPARATOR;
    writeUInt32(bytes, start + 1, length);
    writeUInt32(bytes, start + 5, checksum(bytes, from, to));
    this.#end = to;
  }

  #reserve(count: number): void {
    const needed = this.#end + count;
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(needed, 2 * this.#bytes.length));
    this.#bytes.copy(larger, 0, 0, this.#end);
    this.#bytes = larger;
  }
}

/**
 * The end of the frame that begins at an offset.
 * @returns undefined where no whole, undamaged frame begins
 */
export function frameEnd(bytes: Buffer, offset: number): number | undefined {
  const from = offset + HEADER_BYTES;
  if (from > bytes.length || bytes[offset] !== SEPARATOR) return undefined;
  const length = bytes.readUInt32LE(offset + 1);
  const to = from + length;
  if (length > MAX_PAYLOAD_BYTES || to > bytes.length) return undefined;
  return bytes.readUInt32LE(offset + 5) === checksum(bytes, from, to) ? to : undefined;
}

/** True if the bytes end within the frame that begins at an offset. */
export function isUnfinished(bytes: Buffer, offset: number): boolean {
  if (bytes[offset] !== SEPARATOR) return false;
  if (offset + HEADER_BYTES > bytes.length) return true;
  const length = bytes.readUInt32LE(offset + 1);
  return length <= MAX_PAYLOAD_BYTES && offset + HEADER_BYTES + length > bytes.length;
}

/** Offset of the next undamaged frame, or undefined. */
export function nextFrame(bytes: Buffer, offset: number): number | undefined {
  for (let at = bytes.indexOf(SEPARATOR, offset); at >= 0; at = bytes.indexOf(SEPARATOR, at + 1)) {
    if (frameEnd(bytes, at) !== undefined) return at;
  }
  return undefined;
}

/** The record of an undamaged frame. */
export function parseFrame(bytes: Buffer, offset: number, end: number): Frame {
  const text = bytes.toString('utf8', offset + HEADER_BYTES, end);
  const afterId = text.indexOf(' ');
  const found = text.indexOf(' ', afterId + 1);
  const afterNumber = found < 0 ? text.length : found;
  return {
    kind: text[0],
    sessionId: text.slice(1, afterId),
    n: Number(text.slice(afterId + 1, afterNumber)),
    body: afterNumber === text.length ? undefined : (JSON.parse(text.slice(afterNumber + 1)) as Json),
  };
}

/** The CRC of bytes with their number as initial value, as `zlib.crc32(bytes, bytes.length)` gives it. */
export function checksum(bytes: Buffer, from: number, to: number): number {
  const length = to - from;
  if (length > SHORT_BYTES) return crc32(bytes.subarray(from, to), length);
  let crc = ~length;
  for (let at = from; at < to; at++) crc = CRC_TABLE[(crc ^ bytes[at]) & 0xff] ^ (crc >>> 8);
  return ~crc >>> 0;
}

/** `JSON.stringify`, sooner for what most actions are: a number or a word. */
function jsonOf(value: Json): string {
  if (typeof value === 'number' && Number.isInteger(value)) return String(value + 0);
  if (typeof value === 'string' && isPlain(value)) return `"${value}"`;
  try {
    return JSON.stringify(value);
  } catch (error) {
    // V8 says "Invalid string length".
    if (error instanceof RangeError) throw new RecordTooLarge('the record is longer than a string can be');
    throw error;
  }
}

function isPlain(text: string): boolean {
  if (text.length > MAX_PLAIN_TEXT_LENGTH) return false;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code < SPACE || code >= DELETE || code === QUOTE || code === BACKSLASH) return false;
  }
  return true;
}

/** Writes UTF-8 and gives the end of it. */
function writeText(bytes: Buffer, offset: number, text: string): number {
  if (text.length > MAX_PLAIN_TEXT_LENGTH + 2) return offset + bytes.write(text, offset, 'utf8');
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    if (code > DELETE) return offset + bytes.write(text, offset, 'utf8');
    bytes[offset + at] = code;
  }
  return offset + text.length;
}

function writeUInt32(bytes: Buffer, offset: number, value: number): void {
  bytes[offset] = value;
  bytes[offset + 1] = value >>> 8;
  bytes[offset + 2] = value >>> 16;
  bytes[offset + 3] = value >>> 24;
}

function tooLarge(sessionId: string, length: number): RecordTooLarge {
  return new RecordTooLarge(
    `a record of session ${sessionId} has ${length} bytes; the journal takes up to ${MAX_PAYLOAD_BYTES}`,
  );
}
