import type { Socket } from 'node:net';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { RawData } from 'ws';
import { isObject } from '../../../shared/json.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { counted } from '../../../shared/text.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { ClientRequest, OperationInput, TraceContext } from '../../operations/operation.ts';
import { FrameIdSchema, MAX_FRAME_ID_LENGTH, RequestKey } from '../../operations/schemas/fields.ts';
import { compileCheck } from '../../operations/validation.ts';
import { invalidRequest, Problem } from '../../problems.ts';
import { OPERATION_BYTES } from '../../sessions/limits/budgets.ts';
import type { SessionManager } from '../../sessions/manager.ts';
import type { Principal } from '../../sessions/principal.ts';
import { runBatch } from '../../stages/batch.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { traceIdIn, traceIdOf } from '../monitoring/trace-requests.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { bytesOf, heartbeat, type PacedWebSocket } from './paced-websocket.ts';
import {
  type FrameId,
  type FrameProtocol,
  jsonProtocol,
  msgpackProtocol,
  requireSubprotocol,
} from './protocol.ts';
import { checkWatch, SessionFeed, type WatchFrame } from './session-feed.ts';

/** Characters or bytes of replies above which they are sent without waiting for more. */
const MAX_OUTGOING = 256 * 1024;
/** Frames besides operations that acknowledge nothing. */
const READING_FRAMES: ReadonlySet<unknown> = new Set(['ping', 'watch', 'unwatch']);

const checkBatchFrame = compileCheck(
  closed({
    id: FrameIdSchema,
    op: Type.Literal('batch'),
    items: Type.Array(Type.Unknown(), { minItems: 1 }),
    wait: Type.Optional(Type.Integer({ minimum: 1 })),
    request_key: Type.Optional(RequestKey),
  }),
  'batch',
);
const checkUnwatch = compileCheck(closed({ id: FrameIdSchema, op: Type.Literal('unwatch') }), 'unwatch');
const checkPing = compileCheck(closed({ id: FrameIdSchema, op: Type.Literal('ping') }), 'ping');

export interface WebSocketSettings {
  readonly maxFramesInFlight: number;
  readonly maxBatchItems: number;
  readonly heartbeatSeconds: number;
}

/** `/v1/ws`: any number of frames in flight on one socket, each answered under its `id`. */
export function addWebSocketRoute(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  settings: WebSocketSettings,
): void {
  const watch = heartbeat(app, settings.heartbeatSeconds);
  const preValidation = async (request: FastifyRequest) => {
    requireSubprotocol(request.headers['sec-websocket-protocol']);
  };
  app.get('/v1/ws', { websocket: true, preValidation }, (given, request) => {
    const socket = given as PacedWebSocket;
    watch(socket);
    if (socket.protocol === msgpackProtocol.name) {
      new Connection(socket, request, dispatcher, problemHandler, settings, msgpackProtocol);
    } else {
      new Connection(socket, request, dispatcher, problemHandler, settings, jsonProtocol);
    }
  });
}

interface Frame {
  readonly id?: unknown;
  readonly op?: unknown;
  readonly session_id?: unknown;
  readonly items?: unknown;
  traceparent?: unknown;
}

/** The trace that a frame belongs to. */
interface Origin {
  /** Trace of the request, where requests are traced. */
  readonly trace: TraceContext | undefined;
  /** Trace id that problems name; a new one for each when absent. */
  readonly traceId: string | undefined;
}

/** Fields of a frame that its reply needs. */
interface FrameHeader {
  readonly id: FrameId;
  readonly origin: Origin;
  readonly sessionId: unknown;
  /** True if its reply acknowledges nothing. */
  readonly reads: boolean;
}

class Connection<T, B, M> {
  readonly #socket: PacedWebSocket;
  readonly #principal: Principal;
  readonly #dispatcher: Dispatcher;
  readonly #problemHandler: ProblemHandler;
  readonly #settings: WebSocketSettings;
  readonly #protocol: FrameProtocol<T, B, M>;
  /** Origin of frames that do not name one: that of the upgrade. */
  readonly #origin: Origin;
  #inFlight = 0;
  /** Feed of the sessions that it watches. */
  #feed: SessionFeed | undefined;
  readonly #outgoing: OutgoingFrames<T, B, M>;

  constructor(
    socket: PacedWebSocket,
    request: FastifyRequest,
    dispatcher: Dispatcher,
    problemHandler: ProblemHandler,
    settings: WebSocketSettings,
    protocol: FrameProtocol<T, B, M>,
  ) {
    this.#socket = socket;
    this.#principal = request.principal;
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
    this.#settings = settings;
    this.#protocol = protocol;
    const { sessions } = dispatcher.services;
    this.#outgoing = new OutgoingFrames(sessions, protocol, socket, request.raw.socket);
    this.#origin = { trace: request.trace, traceId: traceIdOf(request) };
    socket.on('message', (data, isBinary) => this.#receive(data, isBinary));
    socket.on('error', () => socket.terminate());
    socket.on('close', () => this.#feed?.stop());
  }

  #receive(data: RawData, isBinary: boolean): void {
    let id: FrameId = null;
    let sessionId: unknown;
    let origin = this.#origin;
    let reads = true;
    try {
      const frame = toFrame(this.#protocol.parse(data, isBinary));
      reads = this.#isRead(frame);
      sessionId = frame.session_id;
      id = frameId(frame);
      if (frame.traceparent !== undefined) origin = this.#takeOrigin(frame);
      const reply = this.#run(frame, origin);
      if (reply instanceof Promise) {
        const operations = frame.op === 'batch' ? (frame.items as readonly unknown[]).length : 1;
        const bytes = bytesOf(data) + operations * OPERATION_BYTES;
        this.#sendLater({ id, origin, sessionId, reads }, bytes, reply);
      } else this.#outgoing.send(this.#protocol.success(id, reply), reads);
    } catch (error) {
      this.#fail({ id, origin, sessionId, reads }, error);
    }
  }

  /** True if the reply to a frame acknowledges nothing. */
  #isRead({ op, items }: Frame): boolean {
    if (op === 'batch') return Array.isArray(items) && items.every(item => this.#dispatcher.reads(item?.op));
    return this.#dispatcher.reads(op) || READING_FRAMES.has(op);
  }

  /** @param bytes memory of the frame until it is answered */
  #sendLater(header: FrameHeader, bytes: number, reply: Promise<T | B>): void {
    this.#inFlight++;
    this.#socket.hold(bytes);
    const written = reply.then(result => this.#protocol.success(header.id, result));
    written.then(
      message => {
        this.#inFlight--;
        this.#outgoing.send(message, header.reads);
        this.#socket.release(bytes);
      },
      error => {
        this.#inFlight--;
        this.#fail(header, error);
        this.#socket.release(bytes);
      },
    );
  }

  /** The trace that a frame names; an invalid one is ignored, as in a request's header. */
  #takeOrigin(frame: Frame): Origin {
    const { traceparent } = frame;
    if (typeof traceparent !== 'string')
      throw invalidRequest('/traceparent', '"traceparent" must be a string');
    delete frame.traceparent;
    const traceId = traceIdIn({ traceparent });
    if (traceId === undefined) return this.#origin;
    return { trace: this.#dispatcher.services.tracing?.below(traceparent), traceId };
  }

  #run(frame: Frame, origin: Origin): MaybePromise<T | B> {
    if (frame.op === 'ping') {
      checkPing(frame);
      return this.#protocol.pong;
    }
    if (this.#inFlight >= this.#settings.maxFramesInFlight) {
      throw new Problem(
        'too_many_requests',
        `this socket has ${counted(this.#inFlight, 'frame')} in flight, the most it may have`,
      );
    }
    const request = this.#dispatcher.begin(this.#principal, origin.trace);
    if (frame.op === 'batch') return this.#batch(frame, request, origin);
    if (frame.op === 'watch') return this.#watch(frame, origin);
    if (frame.op === 'unwatch') return this.#unwatch(frame);
    const { form } = this.#protocol;
    const compiled = this.#dispatcher.find(frame.op, ['batch', 'ping', 'watch', 'unwatch']);
    compiled.checkFrame(frame);
    const result = compiled.run(request, frame as OperationInput);
    return result instanceof Promise
      ? result.then(value => form.result(compiled, value))
      : form.result(compiled, result);
  }

  /** Answers with the current sessions, and continues under the same id when they change. */
  async #watch(frame: Frame, origin: Origin): Promise<T> {
    checkWatch(frame);
    const principal = this.#principal;
    const dispatcher = this.#dispatcher;
    if (!principal.scopes.has('play') && !principal.scopes.has('admin'))
      throw new Problem('forbidden', 'watch needs a token with the scope play');
    this.#feed?.stop();
    const { feed: written } = this.#protocol;
    const socket = this.#socket;
    const feed = new SessionFeed(dispatcher.services, principal, frame as WatchFrame, {
      get bytesUnsent() {
        return socket.bytesUnsent;
      },
      send: message =>
        this.#outgoing.send(this.#protocol.success(frame.id as FrameId, written(message)), true),
      failed: error =>
        this.#fail({ id: frame.id as FrameId, origin, sessionId: undefined, reads: true }, error),
    });
    this.#feed = feed;
    const first = await feed.start();
    if (socket.readyState !== socket.OPEN) feed.stop();
    return written(first);
  }

  #unwatch(frame: Frame): T {
    checkUnwatch(frame);
    this.#feed?.stop();
    this.#feed = undefined;
    return this.#protocol.plain({ watching: false });
  }

  #batch(frame: Frame, request: ClientRequest, { traceId }: Origin): MaybePromise<B> {
    checkBatchFrame(frame);
    const { items, wait, request_key } = frame as { items: unknown[]; wait?: number; request_key?: string };
    /** Bytes held by replies to items while others are missing; undefined once the batch is answered. */
    let held: number | undefined = 0;
    const batch = {
      items,
      wait,
      requestKey: request_key,
      mostItems: this.#settings.maxBatchItems,
      problem: (error: unknown, sessionId: unknown) =>
        this.#problemHandler.document(error, { traceId, sessionId }),
      hold: (length: number) => {
        if (held === undefined) return;
        held += length;
        this.#socket.hold(length);
      },
    };
    const reply = runBatch(this.#dispatcher, request, batch, this.#protocol.form);
    if (!(reply instanceof Promise)) return reply;
    return reply.finally(() => {
      this.#socket.release(held!);
      held = undefined;
    });
  }

  #fail({ id, origin, sessionId, reads }: FrameHeader, error: unknown): void {
    const document = this.#problemHandler.document(error, { traceId: origin.traceId, sessionId });
    this.#outgoing.send(this.#protocol.failure(id, this.#protocol.form.problem(document)), reads);
  }
}

/** Replies of one socket. Replies to the frames of one packet are sent in one packet, unless they are many. */
class OutgoingFrames<T, B, M> {
  readonly #sessions: SessionManager;
  readonly #protocol: FrameProtocol<T, B, M>;
  readonly #socket: PacedWebSocket;
  readonly #stream: Socket;
  #messages: M[] = [];
  /** Replies that are sent before the others. */
  #first: M[] = [];
  #size = 0;

  constructor(
    sessions: SessionManager,
    protocol: FrameProtocol<T, B, M>,
    socket: PacedWebSocket,
    stream: Socket,
  ) {
    this.#sessions = sessions;
    this.#protocol = protocol;
    this.#socket = socket;
    this.#stream = stream;
  }

  /** @param reads it acknowledges nothing: while the disk is slow it is sent before replies that wait for their record */
  send(message: M, reads: boolean): void {
    if (reads && this.#sessions.readsGoFirst) this.#first.push(message);
    else this.#messages.push(message);
    this.#size += this.#protocol.sizeOf(message);
    if (this.#size > MAX_OUTGOING) this.#flush();
    else if (this.#messages.length + this.#first.length === 1) process.nextTick(this.#flush);
  }

  readonly #flush = (): void => {
    const [first, messages] = [this.#first, this.#messages];
    this.#size = 0;
    if (first.length > 0) {
      this.#first = [];
      this.#deliver(first, true);
    }
    if (messages.length > 0) {
      this.#messages = [];
      this.#deliver(messages, false);
    }
  };

  /** Frames are written to the stream directly: through `ws` each would take two buffers and a separate write. */
  #deliver(messages: readonly M[], reads: boolean): void {
    this.#sessions.deliver(() => {
      const { readyState, OPEN } = this.#socket;
      if (readyState === OPEN) this.#stream.write(this.#protocol.frames(messages), 'latin1');
    }, reads);
  }
}

function toFrame(value: unknown): Frame {
  if (!isObject(value)) {
    throw new Problem('invalid_request', 'a frame must be an object with "id" and "op"');
  }
  return value;
}

function frameId({ id }: Frame): string | number {
  if (typeof id === 'string' && id.length <= MAX_FRAME_ID_LENGTH) return id;
  if (Number.isSafeInteger(id)) return id as number;
  const detail = `"id" is required: an integer of at most 2^53 - 1 or a string of at most ${MAX_FRAME_ID_LENGTH} characters`;
  throw invalidRequest('/id', detail);
}
