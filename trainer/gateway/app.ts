import type { EventEmitter } from 'node:events';
import Fastify, { type FastifyInstance, type FastifyRequest } from 'fastify';
import { ApiError } from '../serve/openai/errors.ts';
import { apiErrorOf, completionRoutes } from '../serve/openai/routes.ts';
import { holdsKey, type Rollout } from './rollout.ts';
import { MODEL_NAME, type RolloutModel } from './rollout-model.ts';
import { sessionRoutes } from './session-routes.ts';
import { SESSION_SOCKET, sessionWebSocket } from './session-websocket.ts';
import type { WorkQueue } from './work-queue.ts';

const BODY_LIMIT_BYTES = 1024 * 1024;
const REQUEST_TIMEOUT_MS = 30_000;
/** Choices of one request; several are several branches of the episode. */
const MAX_CHOICES = 16;
/** Requests of one rollout that are answered at once: what one program asks for takes no room from others. */
const MAX_OPEN_REQUESTS = 32;
const RETRY_AFTER_S = 1;
const PREFIX = '/rollouts/:id';

/** A rollout that takes requests. */
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

/** The server that programs talk to, not listening yet. Each rollout has its own path and keys. */
export function createGatewayApp({ rollouts, queue, verifierKey }: GatewayAppParts): FastifyInstance {
  const app = Fastify({
    logger: false,
    bodyLimit: BODY_LIMIT_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    forceCloseConnections: true,
  });
  const named = (request: FastifyRequest): OpenRollout | undefined =>
    rollouts.get((request.params as { readonly id?: string }).id ?? '');
  /** @throws ApiError 401 for any key but that of this rollout, whether there is such a rollout or not */
  const opened = (request: FastifyRequest, key: 'apiKey' | 'sessionToken'): OpenRollout => {
    const open = named(request);
    if (!open || !holdsKey(request.headers.authorization, open.rollout[key])) {
      throw new ApiError(401, 'the key is not valid for this rollout, or the rollout is over', {
        code: 'invalid_api_key',
      });
    }
    return open;
  };
  const openRequests = new WeakMap<Rollout, number>();
  app.setErrorHandler((error, request, reply) => {
    // Nobody reads further requests from the connection of an upgrade.
    if (wantsUpgrade(request)) reply.header('connection', 'close');
    const failure = apiErrorOf(error);
    if (failure.retryAfterS !== undefined) reply.header('retry-after', failure.retryAfterS);
    return reply.status(failure.status).send(failure.body);
  });
  app.setNotFoundHandler(({ method, url }) => {
    throw new ApiError(404, `there is no ${method} ${url.split('?')[0].slice(0, 200)} here`, {
      code: 'unknown_url',
    });
  });
  app.removeContentTypeParser('text/plain');

  // A hook and not the handler, so that a body is read only for those who may send one.
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

/** Which key of its rollout a route wants. */
function keyOf(url: string): 'apiKey' | 'sessionToken' | undefined {
  if (url.startsWith(`${PREFIX}/v1/`)) return 'apiKey';
  return url.startsWith(`${PREFIX}/session`) || url === `${PREFIX}/mcp` ? 'sessionToken' : undefined;
}

/**
 * @param closing emits `close` when the request is over
 * @throws ApiError 429 where the rollout has too many requests open
 */
function takeRoom(rollout: Rollout, closing: EventEmitter, open: WeakMap<Rollout, number>): void {
  const count = open.get(rollout) ?? 0;
  if (count >= MAX_OPEN_REQUESTS) {
    throw new ApiError(429, `${count} requests of this rollout are open; wait for some to end`, {
      code: 'rate_limit_exceeded',
      retryAfterS: RETRY_AFTER_S,
    });
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
    throw new ApiError(401, "only a verifier's key may post rewards", { code: 'invalid_api_key' });
  }
}
