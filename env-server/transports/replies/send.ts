import etag from '@fastify/etag';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Json } from '../../../shared/json.ts';

/**
 * A text, or its consecutive pieces. A long text is best left in pieces until it is written: one letter beyond Latin-1 makes
 * the whole string twice as large and several times slower to encode.
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
 * Writes a text as UTF-8 into a buffer with enough room.
 * @returns where it ends
 */
export function writeText(buffer: Buffer, start: number, text: TextChunks): number {
  if (typeof text === 'string') return start + buffer.write(text, start);
  let end = start;
  for (const piece of text) end += buffer.write(piece, end);
  return end;
}

/**
 * A buffer of exactly what `write` writes; `write` returns its end.
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

const OK = 200;
/** A browser may cache a reply, and revalidates it before each use. */
const REVALIDATED = 'private, no-cache';

/**
 * Gives the replies of routes added to `app` later an `ETag`, and answers 304 where the client has them already. The tags are
 * weak, because a reply may be compressed.
 */
export async function revalidateReplies(app: FastifyInstance): Promise<void> {
  app.addHook('onSend', (_request, reply, payload, done) => {
    if (reply.statusCode === OK) reply.header('cache-control', REVALIDATED);
    done(null, payload);
  });
  await app.register(etag, { weak: true });
}

export const JSON_TYPE = 'application/json; charset=utf-8';

/** Sends a text that is already JSON. */
export function sendJsonText(reply: FastifyReply, text: string): FastifyReply {
  return reply.header('content-type', JSON_TYPE).send(text);
}

/** Sends a value as JSON. */
export function sendJson(reply: FastifyReply, value: Json): FastifyReply {
  return sendJsonText(reply, JSON.stringify(value));
}

/**
 * A number as JSON that typed clients parse as floating point: `1.0`, not `1`.
 * @example floatText(1) // '1.0'
 */
export function floatText(value: number): string {
  return Number.isInteger(value) ? value.toFixed(1) : String(value);
}
