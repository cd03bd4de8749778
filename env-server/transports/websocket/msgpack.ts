import { Decoder, Encoder } from '@msgpack/msgpack';
import { Problem } from '../../problems.ts';
import { MAX_PARTS, VALUES_A_PART } from '../replies/content.ts';

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
 * Reads one value of MessagePack (https://msgpack.org), of which only what JSON has is taken: no binary data, extensions,
 * NaN or infinities; keys are strings, and none is `__proto__`.
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
 * Looks through a message before it is decoded. A decoder makes room for as many members as a map or array announces;
 * here each announced value must have its byte, so that a few bytes cannot take all memory.
 */
function scan(bytes: Uint8Array): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  /** Members that are still to come of each map or array that is open, outermost first. */
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
  if (at !== bytes.length) throw refused(`after its value ${bytes.length - at} bytes are left over`);
}

interface Token {
  /** Head and body, without members. */
  readonly bytes: number;
  /** Values that follow and belong to it: two for each key of a map. */
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
