import fastifyWebsocket from '@fastify/websocket';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { RawData, WebSocket } from 'ws';
import { ApiError, badRequest } from '../serve/openai/errors.ts';
import { apiErrorOf } from '../serve/openai/routes.ts';
import type { Rollout } from './rollout.ts';
import { SESSION_OPERATIONS, type SessionOperation } from './session-operations.ts';

const NORMAL_CLOSURE = 1000;
const TRY_AGAIN_LATER = 1013;
/** Open sockets of one rollout. */
const MAX_SOCKETS = 8;
/** Frames of one socket that wait for their turn. */
const MAX_FRAMES = 32;
/** Replies that a program has not read. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024;

interface Frame {
  readonly id: string | number;
  readonly op: string;
  readonly session_id?: unknown;
  readonly action?: unknown;
}

/** Path of the WebSocket below a rollout's prefix. */
export const SESSION_SOCKET = '/session/ws';

/**
 * The session of a rollout over a WebSocket, in frames as those of the environment server: `{id, op, action?}`, answered by
 * `{id, ok: true, result}` or `{id, ok: false, error}`. Frames are carried out one after the other. It closes when the
 * rollout is over.
 * @param rolloutOf the rollout that a request has the key of
 */
export function sessionWebSocket(
  app: FastifyInstance,
  prefix: string,
  rolloutOf: (request: FastifyRequest) => Rollout,
  maxFrameBytes: number,
): void {
  const sockets = new WeakMap<Rollout, Set<WebSocket>>();
  // In a separate scope: the plugin adds to every request in it.
  app.register(async scope => {
    await scope.register(fastifyWebsocket, { options: { maxPayload: maxFrameBytes } });
    scope.get(`${prefix}${SESSION_SOCKET}`, { websocket: true }, (socket, request) => {
      const rollout = rolloutOf(request);
      let open = sockets.get(rollout);
      if (!open) {
        open = new Set();
        sockets.set(rollout, open);
        closeAtEnd(rollout, open);
      }
      if (open.size >= MAX_SOCKETS) {
        socket.on('error', () => {});
        socket.close(TRY_AGAIN_LATER, `a rollout has up to ${MAX_SOCKETS} sockets`);
        return;
      }
      const others = open;
      others.add(socket);
      socket.on('close', () => others.delete(socket));
      play(socket, rollout);
      if (!rollout.isOpen) socket.close(NORMAL_CLOSURE, 'the rollout is over');
    });
  });
}

function closeAtEnd(rollout: Rollout, open: ReadonlySet<WebSocket>): void {
  const close = () => {
    for (const socket of open) socket.close(NORMAL_CLOSURE, 'the rollout is over');
  };
  rollout.ended.then(close, close);
}

function play(socket: WebSocket, rollout: Rollout): void {
  let waiting = 0;
  let turn: Promise<void> = Promise.resolve();
  // The library closes the socket after a frame that breaks the protocol.
  socket.on('error', () => {});
  socket.on('message', (data: RawData, isBinary: boolean) => {
    if (++waiting > MAX_FRAMES) {
      socket.close(TRY_AGAIN_LATER, `more than ${MAX_FRAMES} frames wait for their turn`);
      return;
    }
    turn = turn.then(async () => {
      const reply = await replyTo(data, isBinary, rollout);
      waiting--;
      if (socket.bufferedAmount > MAX_BUFFERED_BYTES) socket.terminate();
      else if (socket.readyState === socket.OPEN) socket.send(JSON.stringify(reply));
    });
  });
}

async function replyTo(data: RawData, isBinary: boolean, rollout: Rollout): Promise<object> {
  let id: Frame['id'] | null = null;
  try {
    const frame = parsed(data, isBinary);
    if (typeof frame.id !== 'string' && typeof frame.id !== 'number') {
      throw badRequest('a frame needs an id: a string or a number', 'id');
    }
    ({ id } = frame);
    if (!rollout.isOpen) throw new ApiError(401, 'the rollout is over', { code: 'invalid_api_key' });
    return { id, ok: true, result: await carriedOut(frame as Frame, rollout) };
  } catch (error) {
    const { status, message, body } = apiErrorOf(error);
    return { id, ok: false, error: { status, code: body.error.code, detail: message } };
  }
}

function carriedOut({ op, session_id = null, action }: Frame, rollout: Rollout): Promise<unknown> {
  if (op === 'ping') return Promise.resolve({ pong: true });
  if (!Object.hasOwn(SESSION_OPERATIONS, op)) {
    const known = [...Object.keys(SESSION_OPERATIONS), 'ping'].join(', ');
    throw badRequest(`op must be one of ${known}: the session of a rollout does nothing else`, 'op');
  }
  if (session_id !== null && session_id !== rollout.session.sessionId) {
    throw badRequest("the only session here is the rollout's: leave session_id out", 'session_id');
  }
  const operation: SessionOperation = SESSION_OPERATIONS[op as keyof typeof SESSION_OPERATIONS];
  return operation(rollout, { action });
}

function parsed(data: RawData, isBinary: boolean): Partial<Frame> {
  if (isBinary) throw badRequest('frames are JSON in text');
  let value: unknown;
  try {
    value = JSON.parse(data.toString());
  } catch (error) {
    throw badRequest(`the frame is no JSON: ${(error as Error).message}`);
  }
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value;
  throw badRequest('the frame must be a JSON object');
}
