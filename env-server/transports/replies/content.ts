import { isUtf8 } from 'node:buffer';
import type { IncomingMessage } from 'node:http';
import { promisify } from 'node:util';
import { brotliDecompress, gunzip, inflate } from 'node:zlib';
import etag from '@fastify/etag';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Json } from '../../../shared/json.ts';
import { type SlotGroup, Slots } from '../../../shared/scheduling/queues.ts';
import { Problem } from '../../problems.ts';
import type { Lane } from '../../scheduling/fair-scheduler.ts';

/** Supported compressions of bodies, by `Content-Encoding`. */
const DECODERS: { readonly [encoding: string]: (body: Buffer, options: object) => Promise<Buffer> } = {
  gzip: promisify(gunzip),
  br: promisify(brotliDecompress),
  deflate: promisify(inflate),
};
/**
 * Most bodies being decompressed or waiting at full length to be parsed: each takes a thread, of which there are few, and
 * memory up to the limit.
 */
const MAX_DECODING = 2;
const JSON_CONTENT = /^application\/(?:problem\+)?json\b/;
/** Routes that accept definitions of environments. */
const DEFINITIONS = '/v1/envs';
/** Larger replies are not indented, because that would delay everyone. */
const MAX_INDENTED_BYTES = 256 * 1024;
const INDENT = 2;

/** The parser's messages about objects written as in Python or JavaScript. */
const UNQUOTED = /^(?:Expected (?:property name|double-quoted)|Unexpected token (?:'|']'))/;
const FORBIDDEN_KEY = '__proto__';
/** A key may be written with escapes. */
const ESCAPE = '\\u00';
/** Most lists, objects and keys of one text: their number determines the parsing time, not the length of the text. */
export const MAX_PARTS = 100_000;
/** The same for definitions of environments, which may have large tables. */
export const MAX_DEFINITION_PARTS = 300_000;
/** Other values of a text cost a fraction of that. */
export const VALUES_A_PART = 2;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;

declare module 'fastify' {
  interface FastifyRequest {
    /** True if the query asks for indented JSON. */
    pretty: boolean;
  }
}

/**
 * Accepts JSON bodies only, compressed or not.
 * @param limitBytes of a body, also after decompression
 * @param paced schedules the parsing of a body
 */
export function readJson(
  app: FastifyInstance,
  limitBytes: number,
  paced: { laneOf(request: IncomingMessage): Lane },
): void {
  const slots = new Slots({ most: MAX_DECODING });
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request, body: Buffer, done) => {
    const encoding = request.headers['content-encoding']?.toLowerCase() ?? 'identity';
    const maxParts = request.routeOptions.url?.startsWith(DEFINITIONS) ? MAX_DEFINITION_PARTS : MAX_PARTS;
    const read = (plain: Buffer, release?: () => void) =>
      paced.laneOf(request.raw).run(() => {
        release?.();
        let value: unknown;
        try {
          value = plain.length === 0 ? undefined : parseJson(textOf(plain), maxParts);
        } catch (error) {
          done(error as Error);
          return;
        }
        done(null, value);
      });
    if (encoding === 'identity') read(body);
    else {
      const { raw } = request;
      const decoding = { body, encoding, limitBytes, isLeft: () => raw.socket.destroyed };
      const slot = slots.group(paced.laneOf(raw).client);
      decode(decoding, slot).then(plain => read(plain, () => slot.release()), done);
    }
  });
}

/** @throws Problem `bad_json` where letters would be replaced */
function textOf(body: Buffer): string {
  if (!isUtf8(body)) throw new Problem('bad_json', 'the body is not UTF-8, which JSON is sent in');
  return body.toString();
}

interface Decoding {
  readonly body: Buffer;
  readonly encoding: string;
  /** Greatest length of the body when it is decompressed. */
  readonly limitBytes: number;
  /** True if its client is gone. */
  isLeft(): boolean;
}

/** Decompresses a body. It keeps its slot until it is parsed: the caller releases it, unless this throws. */
async function decode(decoding: Decoding, slot: SlotGroup): Promise<Buffer> {
  const { body, encoding, limitBytes } = decoding;
  const decoder = Object.hasOwn(DECODERS, encoding) ? DECODERS[encoding] : undefined;
  if (!decoder) {
    throw new Problem(
      'unsupported_media_type',
      `the header content-encoding is ${JSON.stringify(encoding)}; bodies are taken as they are, or compressed with one of ${Object.keys(DECODERS).join(', ')}`,
    );
  }
  await slot.take();
  try {
    if (decoding.isLeft()) throw new Error('its client is gone');
    return await decoder(body, { maxOutputLength: limitBytes });
  } catch (error) {
    slot.release();
    const { code, message } = error as NodeJS.ErrnoException;
    if (code === 'ERR_BUFFER_TOO_LARGE') {
      throw new Problem(
        'body_too_large',
        `the body is larger than ${limitBytes} bytes when it is decompressed; the server takes no more (--body-limit-bytes)`,
      );
    }
    throw new Problem(
      'bad_request',
      `the body is not ${encoding} as the header content-encoding says: ${message}`,
    );
  }
}

/** Records that the query asks for indented JSON. */
export function takePretty(request: FastifyRequest): void {
  const query = request.query as { pretty?: unknown };
  if (query.pretty === undefined) return;
  request.pretty = query.pretty !== 'false' && query.pretty !== '0';
  // No operation knows it.
  delete query.pretty;
}

/** The text of a reply as sent: JSON ends with a line break, so that the shell prompt after curl starts a new line. */
export function contentOf(request: FastifyRequest, reply: FastifyReply, payload: unknown): unknown {
  const isText = typeof payload === 'string' || Buffer.isBuffer(payload);
  if (!isText || payload.length === 0) return payload;
  if (!request.pretty && (typeof payload !== 'string' || payload.endsWith('\n'))) return payload;
  if (!JSON_CONTENT.test(String(reply.getHeader('content-type')))) return payload;
  if (request.pretty && payload.length <= MAX_INDENTED_BYTES) {
    return `${JSON.stringify(JSON.parse(payload.toString()), null, INDENT)}\n`;
  }
  return typeof payload === 'string' && !payload.endsWith('\n') ? `${payload}\n` : payload;
}

/**
 * Parses a request's text.
 * @throws Problem `bad_json`, also for the key `__proto__`, which some code would take for the prototype
 */
export function parseJson(text: string, maxParts = MAX_PARTS): unknown {
  try {
    if (text.length > maxParts && hasTooManyParts(text, maxParts)) {
      throw new Problem(
        'body_too_large',
        `a request may have ${maxParts} lists, objects and keys (${VALUES_A_PART} values of a list count as one), this one has more`,
      );
    }
    const value: unknown = JSON.parse(text);
    if (text.includes(FORBIDDEN_KEY) || text.includes(ESCAPE)) refuseForbidden(value);
    return value;
  } catch (error) {
    if (error instanceof Problem) throw error;
    const { message } = error as Error;
    const hint = UNQUOTED.test(message)
      ? '; keys and texts take double quotes, and no comma before } or ]'
      : '';
    throw new Problem('bad_json', message + hint);
  }
}

function hasTooManyParts(text: string, maxParts: number): boolean {
  const most = VALUES_A_PART * maxParts;
  let cost = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) at = endOfString(text, at);
    else if (unit === COMMA) cost++;
    else if (unit === COLON || unit === BRACKET || unit === BRACE) cost += VALUES_A_PART;
    if (cost > most) return true;
  }
  return false;
}

/** Index of the quote that ends a string; the end of the text where there is none. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((end - before) % 2 === 0) return end;
  }
  return text.length;
}

/** Checks every key of a value. (A reviver of `JSON.parse` takes ten times as long.) */
function refuseForbidden(value: unknown): void {
  const open: unknown[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== 'object' || next === null) continue;
    if (Object.hasOwn(next, FORBIDDEN_KEY)) {
      throw new Problem('bad_json', `the key "${FORBIDDEN_KEY}" is not allowed`);
    }
    for (const member of Array.isArray(next) ? next : Object.values(next)) {
      if (typeof member === 'object' && member !== null) open.push(member);
    }
  }
}

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
