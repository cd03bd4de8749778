import { Decoder, Encoder } from '@msgpack/msgpack';
import type { RawData } from 'ws';
import { counted } from '../../../shared/text.ts';
import { Problem } from '../../problems.ts';
import { plainForm, type ReplyForm, textForm } from '../../stages/batch.ts';
import {
  bytesOf,
  MAX_BYTES_PER_UNIT,
  MAX_PARTS,
  parseJson,
  type TextChunks,
  unitsOf,
  VALUES_A_PART,
  writeText,
  written,
} from '../replies/content.ts';
import { type FeedMessage, feedText } from './session-feed.ts';

/** Greatest depth of nested maps and arrays. */
const DEEPEST = 100;

/** Keys are among them. */
const MAX_VALUES = VALUES_A_PART * MAX_PARTS;

const encoder = new Encoder({ ignoreUndefined: true, maxDepth: 1000 });
const decoder = new Decoder({
  mapKeyConverter(key) {
    if (typeof key === 'string') return key;
    throw new Error(`keys must be strings, got ${key}`);
  },
});

export function encodeMsgpack(value: unknown): Uint8Array {
  return encoder.encode(value);
}

/**
 * Reads one MessagePack value (https://msgpack.org), restricted to what JSON can hold: no binary data, extensions, NaN or
 * infinities; keys are strings other than `__proto__`.
 * @throws Problem `bad_json`
 */
export function decodeMsgpack(bytes: Uint8Array): unknown {
  scan(bytes);
  try {
    return decoder.decode(bytes);
  } catch (error) {
    throw refused((error as Error).message);
  }
}

/**
 * Checks a message before it is decoded. A decoder allocates as many members as a map or array announces; here each announced
 * value must have its byte, so that a few bytes cannot take all memory.
 */
function scan(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  /** Remaining members of each open map or array, outermost first. */
  const open: number[] = [];
  let owed = 1;
  let tokens = 0;
  let at = 0;
  while (owed > 0) {
    if (owed > bytes.length - at) throw refused(`it ends within a value, after ${bytes.length} bytes`);
    let token: Token;
    try {
      token = tokenAt(view, at);
    } catch (error) {
      if (error instanceof RangeError) throw refused(`it ends within a value, after ${bytes.length} bytes`);
      throw error;
    }
    at += token.bytes;
    if (++tokens > MAX_VALUES) throw refused(`it has more than ${MAX_VALUES} values`);
    owed += token.members - 1;
    if (open.length > 0) open[open.length - 1]--;
    if (token.members > 0) open.push(token.members);
    while (open[open.length - 1] === 0) open.pop();
    if (open.length > DEEPEST) throw refused(`values are nested more than ${DEEPEST} levels deep`);
  }
  if (at !== bytes.length) throw refused(`it has ${counted(bytes.length - at, 'byte')} after its value`);
}

interface Token {
  /** Head and body, without members. */
  readonly bytes: number;
  /** Number of following values that belong to it: two for each key of a map. */
  readonly members: number;
}

/** @throws RangeError where the message ends within the token */
function tokenAt(view: DataView, at: number): Token {
  const head = view.getUint8(at);
  if (head <= 0x7f || head >= 0xe0) return { bytes: 1, members: 0 };
  if (head <= 0x8f) return { bytes: 1, members: 2 * (head & 0x0f) };
  if (head <= 0x9f) return { bytes: 1, members: head & 0x0f };
  if (head <= 0xbf) return scalar(view, at, 1 + (head & 0x1f));
  switch (head) {
    case 0xc0:
    case 0xc2:
    case 0xc3:
      return { bytes: 1, members: 0 };
    case 0xcc:
    case 0xd0:
      return scalar(view, at, 2);
    case 0xcd:
    case 0xd1:
      return scalar(view, at, 3);
    case 0xce:
    case 0xd2:
      return scalar(view, at, 5);
    case 0xcf:
    case 0xd3:
      return scalar(view, at, 9);
    case 0xca:
      requireFinite(view.getFloat32(at + 1));
      return { bytes: 5, members: 0 };
    case 0xcb:
      requireFinite(view.getFloat64(at + 1));
      return { bytes: 9, members: 0 };
    case 0xd9:
      return scalar(view, at, 2 + view.getUint8(at + 1));
    case 0xda:
      return scalar(view, at, 3 + view.getUint16(at + 1));
    case 0xdb:
      return scalar(view, at, 5 + view.getUint32(at + 1));
    case 0xdc:
      return { bytes: 3, members: view.getUint16(at + 1) };
    case 0xdd:
      return { bytes: 5, members: view.getUint32(at + 1) };
    case 0xde:
      return { bytes: 3, members: 2 * view.getUint16(at + 1) };
    case 0xdf:
      return { bytes: 5, members: 2 * view.getUint32(at + 1) };
    default:
      throw refused(`values must be such as JSON has; byte ${at} begins binary data or an extension`);
  }
}

function scalar(view: DataView, at: number, bytes: number): Token {
  if (at + bytes > view.byteLength) throw new RangeError();
  return { bytes, members: 0 };
}

function requireFinite(value: number): void {
  if (!Number.isFinite(value)) throw refused(`numbers must be finite, got ${value}`);
}

function refused(why: string): Problem {
  return new Problem('bad_json', `the message is not MessagePack of a JSON value: ${why}`);
}

/** First bytes of unfragmented frames (RFC 6455, section 5.2). */
const FINAL_TEXT = 0x81;
const FINAL_BINARY = 0x82;
const MAX_SHORT = 125;
const MAX_16_BIT = 0xffff;
const LENGTH_16_BIT = 126;
const LENGTH_64_BIT = 127;
const MEDIUM_HEADER = 4;
/** Node writes a text of this length, with its header, without allocating memory. */
const MAX_PLAIN = 16_000;
const MAX_BYTE = 0xff;
const MAX_ASCII = 0x7f;
const MAX_HEADER = 10;

/** Id of a frame; null in the reply to a frame with an unreadable id. */
export type FrameId = string | number | null;

/**
 * Encoding of a socket's frames: its WebSocket subprotocol. `T` is the type of results, `B` that of batches, `M` that of a
 * whole message.
 */
export interface FrameProtocol<T, B, M> {
  readonly name: string;
  readonly form: ReplyForm<T, B>;
  /** @throws Problem `bad_json` */
  parse(data: RawData, isBinary: boolean): unknown;
  success(id: FrameId, result: T | B): M;
  failure(id: FrameId, problem: T): M;
  /** The result of a ping. */
  readonly pong: T;
  /** A result that no operation gave. */
  plain(value: object): T;
  /** Encodes a message to a watcher. */
  feed(message: FeedMessage): T;
  /** Approximate size of a message in bytes. */
  sizeOf(message: M): number;
  /** Messages as consecutive WebSocket frames: bytes, or a text of one letter for each byte (Latin-1). */
  frames(messages: readonly M[]): Buffer | string;
}

export const jsonProtocol: FrameProtocol<string, readonly string[], TextChunks> = {
  name: 'ragen.json',
  form: textForm,
  parse(data, isBinary) {
    if (isBinary) throw wrongKind('ragen.json', 'text');
    return parseJson(data.toString());
  },
  success(id, result) {
    const head = `{"id":${JSON.stringify(id)},"ok":true,"result":`;
    return typeof result === 'string' ? `${head}${result}}` : [head, ...result, '}'];
  },
  failure: (id, problem) => `{"id":${JSON.stringify(id)},"ok":false,"error":${problem}}`,
  pong: '{"pong":true}',
  plain: value => JSON.stringify(value),
  feed: feedText,
  sizeOf: unitsOf,
  frames: textFrames,
};

export const msgpackProtocol: FrameProtocol<unknown, unknown, Uint8Array> = {
  name: 'ragen.msgpack',
  form: plainForm,
  parse(data, isBinary) {
    if (!isBinary) throw wrongKind('ragen.msgpack', 'binary');
    return decodeMsgpack(data as Buffer);
  },
  success: (id, result) => encodeMsgpack({ id, ok: true, result }),
  failure: (id, error) => encodeMsgpack({ id, ok: false, error }),
  pong: { pong: true },
  plain: value => value,
  feed: message => message,
  sizeOf: message => message.length,
  frames: binaryFrames,
};

const PROTOCOLS = [jsonProtocol, msgpackProtocol];
/** The subprotocols of `/v1/ws`; clients that name none get the first. */
const SUBPROTOCOLS: readonly string[] = PROTOCOLS.map(({ name }) => name);

/** The first supported subprotocol that a client offers. */
export function chooseSubprotocol(offered: Iterable<string>): string | undefined {
  for (const name of offered) if (SUBPROTOCOLS.includes(name)) return name;
  return undefined;
}

/** @throws Problem `bad_request` for a client that offers only unknown ones */
export function requireSubprotocol(header: string | undefined): void {
  if (header === undefined) return;
  const offered = header.split(',').map(name => name.trim());
  if (chooseSubprotocol(offered) !== undefined) return;
  throw new Problem(
    'bad_request',
    `the subprotocol ${offered.join(', ')} is not known; offer ${SUBPROTOCOLS.join(' or ')}, or none for ${SUBPROTOCOLS[0]}`,
  );
}

function wrongKind(name: string, kind: string): Problem {
  return new Problem('bad_json', `this socket speaks ${name}: frames must be ${kind}`);
}

/**
 * Texts as WebSocket frames of a server (unmasked, not compressed) in one piece, so that all replies of a moment take one
 * write.
 */
export function textFrames(texts: readonly TextChunks[]): Buffer | string {
  return texts.length === 1 ? (plainFrame(texts[0]) ?? bufferOf(texts)) : bufferOf(texts);
}

/**
 * The frame of a reply as most are: one text of medium length in ASCII, where a letter is a byte. The kernel's copy is
 * then the only one.
 */
function plainFrame(text: TextChunks): string | undefined {
  const { length } = text;
  if (typeof text !== 'string' || length <= MAX_SHORT || length > MAX_PLAIN) return undefined;
  const [high, low] = [length >> 8, length & MAX_BYTE];
  const frame = String.fromCharCode(FINAL_TEXT, LENGTH_16_BIT, high, low) + text;
  // In UTF-8 a letter beyond ASCII, as those of the header may be, takes more than a byte.
  const beyond = 1 + (high > MAX_ASCII ? 1 : 0) + (low > MAX_ASCII ? 1 : 0);
  return Buffer.byteLength(frame) === frame.length + beyond ? frame : undefined;
}

function bufferOf(texts: readonly TextChunks[]): Buffer {
  let bound = 0;
  for (const text of texts) bound += MAX_HEADER + unitsOf(text) * MAX_BYTES_PER_UNIT;
  return written(bound, buffer => {
    let end = 0;
    for (const text of texts) end = writeFrame(buffer, end, text);
    return end;
  });
}

/** Messages as binary frames, all in one buffer as well. */
export function binaryFrames(messages: readonly Uint8Array[]): Buffer {
  let bound = 0;
  for (const message of messages) bound += MAX_HEADER + message.length;
  const buffer = Buffer.allocUnsafe(bound);
  let end = 0;
  for (const message of messages) {
    buffer[end] = FINAL_BINARY;
    end = writeLength(buffer, end, message.length);
    buffer.set(message, end);
    end += message.length;
  }
  return buffer.subarray(0, end);
}

function writeFrame(buffer: Buffer, start: number, text: TextChunks): number {
  // The header's size depends on the text's, which is known only after writing. Texts that surely have a header of medium
  // size, which nearly all have, are written in place; others are counted first.
  const units = unitsOf(text);
  const surelyMedium = units > MAX_SHORT && units * MAX_BYTES_PER_UNIT <= MAX_16_BIT;
  buffer[start] = FINAL_TEXT;
  if (!surelyMedium) return writeText(buffer, writeLength(buffer, start, bytesOf(text)), text);
  const end = writeText(buffer, start + MEDIUM_HEADER, text);
  writeLength(buffer, start, end - start - MEDIUM_HEADER);
  return end;
}

/** Writes the length of a frame that begins at `start`, and returns where its body begins. */
function writeLength(buffer: Buffer, start: number, length: number): number {
  if (length <= MAX_SHORT) {
    buffer[start + 1] = length;
    return start + 2;
  }
  if (length <= MAX_16_BIT) {
    buffer[start + 1] = LENGTH_16_BIT;
    buffer.writeUInt16BE(length, start + 2);
    return start + MEDIUM_HEADER;
  }
  buffer[start + 1] = LENGTH_64_BIT;
  buffer.writeBigUInt64BE(BigInt(length), start + 2);
  return start + MAX_HEADER;
}
