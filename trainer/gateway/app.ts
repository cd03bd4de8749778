import type { EventEmitter } from 'node:events';
import fastifyWebsocket from '@fastify/websocket';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Fastify from 'fastify';
import type { RawData, WebSocket } from 'ws';
import { joinChunks } from '../../shared/http/chunks.ts';
import { isObject, isShallow, jsonOf, parseJson } from '../../shared/json.ts';
import { SerialQueue } from '../../shared/scheduling/serial-queue.ts';
import { ServerProblem } from '../client/retry.ts';
import { ApiError, badRequest, tooMany, unauthorized } from '../serve/openai/errors.ts';
import { apiErrorOf, completionRoutes, refuseUnknown, sendError } from '../serve/openai/routes.ts';
import { holdsKey, MODEL_NAME, type Rollout, type RolloutModel } from './rollout.ts';
import type { WorkQueue } from './work-queue.ts';

const NORMAL_CLOSURE = 1000;
const TRY_AGAIN_LATER = 1013;
/** Most open sockets of one rollout. */
const MAX_SOCKETS = 8;
/** Most waiting frames of one socket. */
const MAX_FRAMES = 32;
/** Most bytes of replies that a program has not read. */
const MAX_BUFFERED_BYTES = 4 * 1024 * 1024;

interface Frame {
  readonly id: string | number;
  readonly op: string;
  readonly session_id?: unknown;
  readonly action?: unknown;
}

/** Path of the WebSocket below a rollout's prefix. */
const SESSION_SOCKET = '/session/ws';

/**
 * The session of a rollout over a WebSocket, in frames like those of the environment server: `{id, op, action?}`,
 * answered by `{id, ok: true, result}` or `{id, ok: false, error}`. Frames are carried out one after another. The
 * socket closes when the rollout is over.
 * @param rolloutOf the rollout with the request's key
 */
function sessionWebSocket(
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
  const frames = new SerialQueue();
  // The library closes the socket after a frame that breaks the protocol.
  socket.on('error', () => {});
  socket.on('message', (data: RawData, isBinary: boolean) => {
    if (++waiting > MAX_FRAMES) {
      socket.close(TRY_AGAIN_LATER, `more than ${MAX_FRAMES} frames wait for their turn`);
      return;
    }
    void frames.run(async () => {
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
    if (!rollout.isOpen) throw unauthorized('the rollout is over');
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
  const value = jsonOf(data.toString(), reason => badRequest(`the frame is not JSON: ${reason}`));
  if (!isObject(value)) throw badRequest('the frame must be a JSON object');
  checkJson(value);
  return value;
}

/** @throws ApiError 400 for a value that could not be passed on to the environment server */
function checkJson(value: unknown): void {
  if (!isShallow(value)) throw badRequest('the JSON is nested more than 100 levels deep');
  if (hasInfinity(value)) throw badRequest('the JSON has a number beyond ±1.8e308');
}

/** JSON has numbers such as 1e400, and writes what they become as null. */
function hasInfinity(value: unknown): boolean {
  if (typeof value === 'object' && value !== null) return Object.values(value).some(hasInfinity);
  return typeof value === 'number' && !Number.isFinite(value);
}

const MCP_HEADERS = ['content-type', 'mcp-session-id', 'mcp-protocol-version', 'mcp-method', 'mcp-name'];

/**
 * The session of a rollout: REST at `<prefix>/session`, the environment's tools at `<prefix>/mcp`. The environment
 * server carries everything out, in this session only; programs never see the server's token.
 */
function sessionRoutes(
  app: FastifyInstance,
  prefix: string,
  rolloutOf: (request: FastifyRequest) => Rollout,
): void {
  const { get, valid_actions, step, reset } = SESSION_OPERATIONS;
  app.get(`${prefix}/session`, request => get(rolloutOf(request)));
  app.get(`${prefix}/session/valid-actions`, request => valid_actions(rolloutOf(request)));
  app.post(`${prefix}/session/step`, request =>
    step(rolloutOf(request), (request.body ?? {}) as { readonly action?: unknown }),
  );
  app.post(`${prefix}/session/reset`, request => reset(rolloutOf(request)));
  const forward = async (request: FastifyRequest, reply: FastifyReply) => {
    const rollout = rolloutOf(request);
    const { server, sessionId } = rollout.session;
    const environment = encodeURIComponent(rollout.task.env_id);
    const headers = MCP_HEADERS.flatMap(name => {
      const value = request.headers[name];
      return typeof value === 'string' ? [[name, value]] : [];
    });
    const answer = await server.forward({
      method: 'POST',
      path: `/mcp/${environment}?session_id=${encodeURIComponent(sessionId)}`,
      headers: Object.fromEntries(headers),
      body: JSON.stringify(request.body),
    });
    for (const step of stepsIn(answer.body)) rollout.stepped(step);
    if (answer.contentType !== undefined) reply.header('content-type', answer.contentType);
    return reply.code(answer.status).send(answer.body);
  };
  app.post(`${prefix}/mcp`, forward);
}

/** Step numbers in MCP replies. */
function stepsIn(text: string): number[] {
  const reply = parseJson(text);
  return (Array.isArray(reply) ? reply : [reply]).flatMap(message => {
    const { structuredContent } =
      (message as { result?: { structuredContent?: { step?: unknown; reward?: unknown } } } | null)?.result ??
      {};
    const { step, reward } = structuredContent ?? {};
    return typeof step === 'number' && reward !== undefined ? [step] : [];
  });
}

const BODY_LIMIT_BYTES = 1024 * 1024;
const REQUEST_TIMEOUT_MS = 30_000;
/** Most choices of one request; several choices are several branches of the episode. */
const MAX_CHOICES = 16;
/** Requests of one rollout answered at once, so that one program takes no room from others. */
const MAX_OPEN_REQUESTS = 32;
const PREFIX = '/rollouts/:id';

/** A rollout that accepts requests. */
export interface OpenRollout {
  readonly rollout: Rollout;
  readonly model: RolloutModel;
}

export interface GatewayAppParts {
  readonly rollouts: ReadonlyMap<string, OpenRollout>;
  readonly queue: WorkQueue;
  /** Bearer token of verifiers; undefined: nobody may post rewards. */
  readonly verifierKey: string | undefined;
}

/** The server for programs, not listening yet. Each rollout has its own path and keys. */
export function createGatewayApp({ rollouts, queue, verifierKey }: GatewayAppParts): FastifyInstance {
  const app = Fastify({
    logger: false,
    bodyLimit: BODY_LIMIT_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    forceCloseConnections: true,
  });
  joinChunks(app);
  const named = (request: FastifyRequest): OpenRollout | undefined =>
    rollouts.get((request.params as { readonly id?: string }).id ?? '');
  /** @throws ApiError 401 for any key but that of this rollout, whether or not the rollout exists */
  const opened = (request: FastifyRequest, key: 'apiKey' | 'sessionToken'): OpenRollout => {
    const open = named(request);
    if (!open || !holdsKey(request.headers.authorization, open.rollout[key])) {
      throw unauthorized('the key is not valid for this rollout, or the rollout is over');
    }
    return open;
  };
  const openRequests = new WeakMap<Rollout, number>();
  app.setErrorHandler((error, request, reply) => {
    // Nobody reads further requests from the connection of an upgrade.
    if (wantsUpgrade(request)) reply.header('connection', 'close');
    return sendError(error, request, reply);
  });
  app.setNotFoundHandler(refuseUnknown);
  app.removeContentTypeParser('text/plain');

  // A hook and not the handler, so that a body is read only for authorized clients.
  app.addHook('onRequest', async (request, reply) => {
    const { url = '' } = request.routeOptions;
    const upgrade = wantsUpgrade(request);
    if (upgrade !== (url === `${PREFIX}${SESSION_SOCKET}`)) {
      const why = upgrade ? 'there is no WebSocket here: that of the session' : 'a WebSocket';
      throw new ApiError(400, `${why} is at RAGEN_SESSION_URL/ws, with ws:// for http://`, {
        code: 'no_websocket',
      });
    }
    const key = keyOf(url);
    const closing = upgrade ? request.raw.socket : reply.raw;
    if (key) takeRoom(opened(request, key).rollout, closing, openRequests);
    else if (url === `${PREFIX}/reward`) checkVerifier(request, verifierKey);
    else if (url === '/rollouts/next' || url === `${PREFIX}/finish`) {
      queue.checkWorker(request.headers.authorization);
    }
  });
  app.addHook('preValidation', async ({ body }) => checkJson(body));
  app.addHook('onResponse', async request => {
    if (wantsUpgrade(request)) request.raw.socket.destroySoon();
  });
  app.get(`${PREFIX}/v1/models`, async () => ({
    object: 'list',
    data: [{ id: MODEL_NAME, object: 'model', created: 0, owned_by: 'ragen' }],
  }));
  completionRoutes(app, `${PREFIX}/v1`, {
    model: (_name, request) => opened(request, 'apiKey').model,
    mostChoices: MAX_CHOICES,
    enter: () => () => {},
  });
  const rolloutOf = (request: FastifyRequest) => opened(request, 'sessionToken').rollout;
  sessionRoutes(app, PREFIX, rolloutOf);
  sessionWebSocket(app, PREFIX, rolloutOf, BODY_LIMIT_BYTES);
  rewardRoute(app, named);
  queue.addRoutes(app, PREFIX);
  return app;
}

/** A verifier's reward ends the rollout unless it says otherwise. */
function rewardRoute(
  app: FastifyInstance,
  named: (request: FastifyRequest) => OpenRollout | undefined,
): void {
  app.post(`${PREFIX}/reward`, async request => {
    const { reward, done = true } = (request.body ?? {}) as {
      readonly reward?: unknown;
      readonly done?: unknown;
    };
    if (typeof reward !== 'number' || !Number.isFinite(reward) || typeof done !== 'boolean') {
      throw new ApiError(400, 'the body must be {"reward": number, "done": true or false}');
    }
    const open = named(request);
    if (!open) throw new ApiError(404, 'there is no such rollout, or it is over');
    open.rollout.reward = reward;
    if (done) open.rollout.end();
    return { reward, done };
  });
}

function wantsUpgrade({ headers }: FastifyRequest): boolean {
  return headers.upgrade?.toLowerCase() === 'websocket';
}

/** The key that a route requires. */
function keyOf(url: string): 'apiKey' | 'sessionToken' | undefined {
  if (url.startsWith(`${PREFIX}/v1/`)) return 'apiKey';
  return url.startsWith(`${PREFIX}/session`) || url === `${PREFIX}/mcp` ? 'sessionToken' : undefined;
}

/**
 * @param closing emits `close` when the request is over
 * @throws ApiError 429 where the rollout has too many open requests
 */
function takeRoom(rollout: Rollout, closing: EventEmitter, open: WeakMap<Rollout, number>): void {
  const count = open.get(rollout) ?? 0;
  if (count >= MAX_OPEN_REQUESTS) {
    throw tooMany(`${count} requests of this rollout are open; wait for some to end`);
  }
  open.set(rollout, count + 1);
  closing.once('close', () => open.set(rollout, (open.get(rollout) ?? 1) - 1));
}

function checkVerifier({ headers }: FastifyRequest, key: string | undefined): void {
  if (key === undefined) {
    throw new ApiError(
      403,
      'rewards come from the environment: the run names no verifier (rollout.agent.verifier_key_env)',
    );
  }
  if (!holdsKey(headers.authorization, key)) {
    throw unauthorized("only a verifier's key may post rewards");
  }
}

/** A program's operation on the session of its rollout; the environment server carries it out. */
type SessionOperation = (rollout: Rollout, input: { readonly action?: unknown }) => Promise<unknown>;

/**
 * Named like the environment server's operations.
 * @throws ApiError where the environment server or the rollout rejects it
 */
const SESSION_OPERATIONS = {
  get: detailOf,
  valid_actions: ({ session: { server, sessionId } }) =>
    passingProblems(() => server.call('valid_actions', { session_id: sessionId })),
  step: async (rollout, { action }) => {
    const { server, sessionId } = rollout.session;
    const result = await passingProblems(() =>
      server.call('step', { session_id: sessionId, action: action as never }),
    );
    rollout.stepped(result.step);
    return result;
  },
  reset: async rollout => {
    const detail = await detailOf(rollout);
    if (detail.step === 0) return detail;
    throw new ApiError(409, 'a rollout is one episode: it has begun and cannot be reset', {
      code: 'episode_begun',
    });
  },
} satisfies { readonly [name: string]: SessionOperation };

function detailOf({ session: { server, sessionId } }: Rollout) {
  return passingProblems(() => server.call('get', { session_id: sessionId }));
}

/** Forwards problems of the environment server to the program. */
async function passingProblems<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof ServerProblem)) throw error;
    throw new ApiError(error.status, error.problem.detail, { code: error.code });
  }
}
