import type { Socket } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { Type } from 'typebox';
import type { RawData, WebSocket } from 'ws';
import { Problem } from '../../shared/problems.ts';
import { runBatch } from '../operations/batch.ts';
import type { Dispatcher } from '../operations/dispatcher.ts';
import { type Call, newCall } from '../operations/execute.ts';
import type { OperationInput } from '../operations/operation.ts';
import { RequestKey } from '../operations/schemas.ts';
import { compileCheck } from '../operations/validation.ts';
import type { Principal } from '../sessions/principal.ts';
import { heartbeat } from './heartbeat.ts';
import { parseJson } from './json.ts';
import type { ProblemDesk } from './problems.ts';
import { textFrames } from './text-frames.ts';

export const SUBPROTOCOL = 'ragen.json';

const RETRY_AFTER_SECONDS = 1;
/** Unsent bytes above which no more frames are read from a socket. */
const HIGH_WATER_BYTES = 4 * 1024 * 1024;

const FrameId = Type.Union([Type.String(), Type.Integer()]);
const checkBatchFrame = compileCheck(
  Type.Object(
    {
      id: FrameId,
      op: Type.Literal('batch'),
      items: Type.Array(Type.Unknown(), { minItems: 1 }),
      wait: Type.Optional(Type.Integer({ minimum: 1 })),
      request_key: Type.Optional(RequestKey),
    },
    { additionalProperties: false },
  ),
  'batch',
);
const checkPing = compileCheck(
  Type.Object({ id: FrameId, op: Type.Literal('ping') }, { additionalProperties: false }),
  'ping',
);

export interface WebSocketSettings {
  readonly maxFramesInFlight: number;
  readonly maxBatchItems: number;
  readonly heartbeatSeconds: number;
}

/** `/v1/ws`: any number of frames in flight on one socket, each answered under its `id`. */
export function addWebSocketRoute(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  desk: ProblemDesk,
  settings: WebSocketSettings,
): void {
  const watch = heartbeat(app, settings.heartbeatSeconds);
  app.get('/v1/ws', { websocket: true, preValidation: refuseForeignOrigin }, (socket, request) => {
    watch(socket);
    new Connection(socket, request, dispatcher, desk, settings);
  });
}

/**
 * Browsers let any page open a WebSocket; only pages of this server may use it.
 * @throws Problem `forbidden`
 */
export async function refuseForeignOrigin(request: FastifyRequest): Promise<void> {
  const { origin, host } = request.headers;
  if (origin === undefined) return;
  if (!URL.canParse(origin) || new URL(origin).host !== host) {
    throw new Problem('forbidden', `pages of ${origin} may not use this server`);
  }
}

interface Frame {
  readonly id?: unknown;
  readonly op?: unknown;
}

class Connection {
  readonly #socket: WebSocket;
  readonly #stream: Socket;
  readonly #principal: Principal;
  readonly #dispatcher: Dispatcher;
  readonly #desk: ProblemDesk;
  readonly #settings: WebSocketSettings;
  #inFlight = 0;
  #outgoing: string[] = [];

  constructor(
    socket: WebSocket,
    request: FastifyRequest,
    dispatcher: Dispatcher,
    desk: ProblemDesk,
    settings: WebSocketSettings,
  ) {
    this.#socket = socket;
    this.#stream = request.raw.socket;
    this.#principal = request.principal;
    this.#dispatcher = dispatcher;
    this.#desk = desk;
    this.#settings = settings;
    socket.on('message', data => this.#receive(data));
    socket.on('error', () => socket.terminate());
  }

  #receive(data: RawData): void {
    let id = 'null';
    try {
      const frame = parseFrame(data);
      id = idText(frame);
      const reply = this.#run(frame);
      if (typeof reply === 'string') {
        this.#send(`{"id":${id},"ok":true,"result":${reply}}`);
        return;
      }
      this.#inFlight++;
      reply.then(
        text => {
          this.#inFlight--;
          this.#send(`{"id":${id},"ok":true,"result":${text}}`);
        },
        error => {
          this.#inFlight--;
          this.#fail(id, error);
        },
      );
    } catch (error) {
      this.#fail(id, error);
    }
  }

  #run(frame: Frame): string | Promise<string> {
    if (frame.op === 'ping') {
      checkPing(frame);
      return '{"pong":true}';
    }
    if (this.#inFlight >= this.#settings.maxFramesInFlight) {
      throw new Problem(
        'too_many_requests',
        `${this.#inFlight} frames of this socket are in flight, the most there may be`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    const call = newCall(this.#dispatcher.services, this.#principal);
    if (frame.op === 'batch') return this.#batch(frame, call);
    const compiled = this.#dispatcher.find(frame.op, ['batch', 'ping']);
    return this.#dispatcher.run(call, compiled, frame as OperationInput);
  }

  #batch(frame: Frame, call: Call): string | Promise<string> {
    checkBatchFrame(frame);
    const { items, wait, request_key } = frame as { items: unknown[]; wait?: number; request_key?: string };
    return runBatch(this.#dispatcher, call, {
      items,
      wait,
      requestKey: request_key,
      mostItems: this.#settings.maxBatchItems,
      problem: error => this.#desk.document(error),
    });
  }

  #fail(id: string, error: unknown): void {
    this.#send(`{"id":${id},"ok":false,"error":${JSON.stringify(this.#desk.document(error))}}`);
  }

  /** Replies to the frames of one packet leave in one packet. */
  #send(text: string): void {
    this.#outgoing.push(text);
    if (this.#outgoing.length === 1) process.nextTick(this.#flush);
  }

  /** Frames go to the stream themselves: through `ws` each would be two buffers and a write of its own. */
  readonly #flush = (): void => {
    const texts = this.#outgoing;
    this.#outgoing = [];
    if (this.#socket.readyState !== this.#socket.OPEN) return;
    if (this.#stream.write(textFrames(texts))) return;
    if (this.#stream.writableLength <= HIGH_WATER_BYTES || this.#socket.isPaused) return;
    this.#socket.pause();
    this.#stream.once('drain', () => this.#socket.resume());
  };
}

function parseFrame(data: RawData): Frame {
  const frame = parseJson(data.toString());
  if (typeof frame !== 'object' || frame === null || Array.isArray(frame)) {
    throw new Problem('invalid_request', 'a frame must be an object with "id" and "op"');
  }
  return frame;
}

/** The frame's id as JSON. */
function idText({ id }: Frame): string {
  if (typeof id === 'string') return JSON.stringify(id);
  if (Number.isInteger(id)) return String(id);
  const detail = '"id" is required: a string or an integer';
  throw new Problem('invalid_request', detail, { violations: [{ pointer: '/id', detail }] });
}
