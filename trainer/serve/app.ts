import { maxHeaderSize } from 'node:http';
import Fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { outputLog } from '../../shared/log-text.ts';
import { VERSION } from '../../shared/version.ts';
import { Access, type AccessSettings } from './access.ts';
import { adapterRoutes } from './adapter-routes.ts';
import { batchRoute } from './batch-route.ts';
import { Capacity } from './capacity.ts';
import { ServeMetrics } from './metrics.ts';
import type { Models } from './models.ts';
import { ApiError } from './openai/errors.ts';
import { apiErrorOf, type CompletionHost, completionRoutes } from './openai/routes.ts';
import { tinkerRoutes } from './tinker/routes.ts';
import type { TinkerServer } from './tinker/server.ts';
import { tokenizerRoutes } from './tokenizer-routes.ts';

const BODY_LIMIT_BYTES = 4 * 2 ** 20;
/** Bodies of all open requests together. */
const BODIES_LIMIT_BYTES = 256 * 2 ** 20;
/** Log levels at which every request is logged. */
const REQUESTS_LOGGED: ReadonlySet<string> = new Set(['info', 'debug']);
const REQUEST_TIMEOUT_MS = 30_000;
const LONGEST_REQUEST_ID = 128;

export interface ServeAppOptions extends AccessSettings {
  readonly models: Models;
  /** Trains adapters for clients of the Tinker API, at `/api/v1`. */
  readonly tinker?: TinkerServer;
  /** Responses that are sampled at once, or wait for it; more are refused with 429. */
  readonly maxStreams: number;
  readonly logLevel: 'silent' | 'error' | 'warn' | 'info' | 'debug';
}

/** The server of `ragen serve`, not listening yet. @throws Error where others could reach it without a token */
export function createServeApp({
  models,
  tinker,
  maxStreams,
  logLevel,
  ...who
}: ServeAppOptions): FastifyInstance {
  const access = new Access(who);
  const capacity = new Capacity(maxStreams, BODIES_LIMIT_BYTES);
  const metrics = new ServeMetrics(models, capacity);
  const app = Fastify({
    loggerInstance: outputLog(logLevel) as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: !REQUESTS_LOGGED.has(logLevel) }),
    bodyLimit: BODY_LIMIT_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    requestIdHeader: false,
    forceCloseConnections: true,
    http: { maxHeaderSize },
  });
  app.addHook('onRequest', async (request, reply) => {
    const given = request.headers['x-request-id'];
    if (typeof given === 'string' && given.length <= LONGEST_REQUEST_ID) reply.header('x-request-id', given);
    else reply.header('x-request-id', request.id);
    if (request.url.startsWith('/health')) return;
    const { authorization, host, 'x-api-key': key } = request.headers;
    access.client(authorization ?? (typeof key === 'string' ? `Bearer ${key}` : undefined), host);
    if (request.method !== 'POST') return;
    const { bodyLimit = BODY_LIMIT_BYTES } = request.routeOptions;
    const announced = Number(request.headers['content-length'] ?? bodyLimit);
    const giveBack = capacity.takeBody(Math.min(bodyLimit, announced));
    reply.raw.once('close', giveBack);
  });
  app.setErrorHandler((error, request, reply) => {
    const problem = apiErrorOf(error);
    if (problem.status >= 500) request.log.error(error);
    if (problem.retryAfterS !== undefined) reply.header('retry-after', problem.retryAfterS);
    if (problem.status === 401) reply.header('www-authenticate', 'Bearer');
    return reply.status(problem.status).send(problem.body);
  });
  app.setNotFoundHandler(request => {
    const { method, url } = request;
    throw new ApiError(404, `there is no ${method} ${url.split('?')[0].slice(0, 200)} here`, {
      code: 'unknown_url',
    });
  });
  app.get('/health', async () => ({ status: 'ok' }));
  app.get('/version', async () => ({ version: VERSION }));
  app.get('/metrics', async (_, reply) =>
    reply.type(metrics.registry.contentType).send(await metrics.registry.metrics()),
  );
  tokenizerRoutes(app, models, capacity);
  adapterRoutes(app, models, access, name => metrics.forget(name));
  const host: CompletionHost = {
    model: name => models.named(name),
    mostChoices: maxStreams,
    enter: choices => capacity.enter(choices),
    onEnd: end => metrics.observe(end),
  };
  completionRoutes(app, '/v1', host);
  batchRoute(app, host);
  if (tinker) app.register(async api => tinkerRoutes(api, tinker), { prefix: '/api/v1' });
  app.addHook('onClose', async () => {
    await tinker?.close();
    await models.close();
  });
  return app;
}
