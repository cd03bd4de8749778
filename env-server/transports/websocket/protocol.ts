import type { RawData } from 'ws';
import { Problem } from '../../problems.ts';
import { plainForm, type ReplyForm, textForm } from '../../stages/batch.ts';
import { parseJson } from '../replies/content.ts';
import { type TextChunks, unitsOf } from '../replies/texts.ts';
import { binaryFrames, textFrames } from './frames.ts';
import { decodeMsgpack, encodeMsgpack } from './msgpack.ts';
import { type FeedMessage, feedText } from './session-feed.ts';

/** Id of a frame; null in the reply to a frame with an unreadable id. */
export type FrameId = string | number | null;

/**
 * Encoding of the frames of a socket: its WebSocket subprotocol. `T` is the type of results, `B` that of batches, `M`
 * that of a whole message.
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
  /** About how many bytes a message takes. */
  sizeOf(message: M): number;
  /** Messages as WebSocket frames, one behind the other. */
  frames(messages: readonly M[]): Buffer;
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

/** The first subprotocol a client offers that there is. */
export function chooseSubprotocol(offered: Iterable<string>): string | undefined {
  for (const name of offered) if (SUBPROTOCOLS.includes(name)) return name;
  return undefined;
}

/** @throws Problem `bad_request` for a client that offers only what there is not */
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
