import type { IncomingMessage } from 'node:http';
import Fastify, { type FastifyInstance, LogController } from 'fastify';
import type { Logger } from 'pino';
import type { AllowedHosts } from '../../shared/http/allowed-hosts.ts';
import { REPLY_HEADERS, secureReplies } from '../../shared/http/page-security.ts';
import type { SessionManager } from '../sessions/manager.ts';
import type { Principal } from '../sessions/principal.ts';
import type { Authenticator } from './access/auth.ts';
import { type AllowedOrigins, shareWithOrigins } from './access/origins.ts';
import { authorizationOf } from './compatible.ts';
import { countRequests, NO_ROUTE, type RequestCounts } from './monitoring/request-counts.ts';
import { traceIdOf, traceRequests } from './monitoring/trace-requests.ts';
import type { OpenTelemetry } from './monitoring/tracing/open-telemetry.ts';
import { writeContent } from './replies/content.ts';
import type { ProblemHandler } from './replies/problem-handler.ts';
import { answerUnrouted } from './replies/unrouted.ts';

declare module 'fastify' {
  interface FastifyRequest {
    principal: Principal;
  }
}

export interface HttpServerParts {
  readonly authenticator: Authenticator;
  readonly hosts: AllowedHosts;
  readonly origins: AllowedOrigins;
  readonly counts: RequestCounts;
  readonly problemHandler: ProblemHandler;
  readonly sessions: SessionManager;
  readonly bodyLimitBytes: number;
  readonly log: Logger;
  readonly tracing: OpenTelemetry | undefined;
}

/** Milliseconds that a client may take to send a request. */
const REQUEST_TIMEOUT_MS = 60_000;
/** Milliseconds that the parts of a server may take to start on a busy machine; Fastify gives up after ten seconds. */
const START_TIMEOUT_MS = 300_000;
/** Milliseconds between Node's checks for slower requests; its default is half a minute. */
const SLOW_REQUESTS_CHECK_MS = 1000;
/** Routes that need no token. */
const OPEN =
  /^\/((livez|readyz|openapi\.json|docs|assets)(\/|\?|$)|runs(\/(assets\/[^?]*|site\.json)?)?(\?|$)|(compat\/ors\/)?health(\?|$)|compat\/openenv\/[^?]+\/health$|\?|$)/;

/** A server without routes, with what all of them share: access, problems, counts, logs, traces and compression. */
export async function createHttpServer(parts: HttpServerParts): Promise<FastifyInstance> {
  const { problemHandler, tracing } = parts;
  const server = newServer(parts);
  // A separate logger for every request costs more than a step.
  server.setChildLoggerFactory(logger => logger);
  server.decorateRequest('principal');
  server.decorateRequest('trace', undefined);
  server.setErrorHandler((error, request, reply) => problemHandler.reply(error, request, reply));
  answerUnrouted(server, problemHandler);
  if (tracing) traceRequests(server, tracing);
  await addHooks(server, parts);
  server.server.on('checkExpectation', server.routing);
  server.server.on('connect', (_request, socket) =>
    problemHandler.refuse(new Error('this is no proxy'), socket),
  );
  return server;
}

function newServer({ problemHandler, counts, bodyLimitBytes, log }: HttpServerParts): FastifyInstance {
  return Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: bodyLimitBytes,
    routerOptions: { maxParamLength: 256 },
    pluginTimeout: START_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    return503OnClosing: false,
    // Node would answer with nothing but a status.
    http: { requireHostHeader: false, connectionsCheckingInterval: SLOW_REQUESTS_CHECK_MS },
    clientErrorHandler: (error, socket) => problemHandler.refuse(error, socket),
    frameworkErrors(error, request, reply) {
      // Such replies pass by the hooks.
      reply.raw.once('finish', () => {
        leaveUpgrade(request.raw);
        counts.add(request.method, NO_ROUTE, reply.statusCode);
      });
      problemHandler.reply(error, request, reply.headers(REPLY_HEADERS));
    },
  }) as unknown as FastifyInstance;
}

/** Adds the hooks in the order in which requests pass them. */
async function addHooks(server: FastifyInstance, parts: HttpServerParts): Promise<void> {
  const { authenticator, hosts, origins, counts, sessions, log } = parts;
  secureReplies(server);
  server.addHook('onRequest', (request, _reply, done) => {
    hosts.check(request.raw);
    done();
  });
  await shareWithOrigins(server, origins);
  countRequests(server, counts);
  await writeContent(server);
  server.addHook('onRequest', (request, _reply, done) => {
    origins.check(request);
    if (!OPEN.test(request.url)) request.principal = authenticator.principal(authorizationOf(request));
    done();
  });
  if (log.isLevelEnabled('debug')) logRequests(server);
  server.addHook('onResponse', (request, _reply, done) => {
    leaveUpgrade(request.raw);
    done();
  });
  server.addHook('onSend', (request, _reply, payload, done) =>
    sessions.deliver(() => done(null, payload), request.method === 'GET'),
  );
}

/** A request to upgrade that was answered instead leaves a socket that nobody reads from any more. */
function leaveUpgrade({ headers, socket }: IncomingMessage): void {
  if (headers.upgrade !== undefined) socket.destroySoon();
}

/** Logs every HTTP request with its reply, at the level `debug`. */
function logRequests(app: FastifyInstance): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { session_id } = (request.params ?? {}) as { session_id?: string };
    const { statusCode: status, elapsedTime } = reply;
    const { method, url } = request;
    const about = { method, url, status, ms: Math.round(elapsedTime * 1000) / 1000, session_id };
    app.log.debug({ ...about, trace_id: traceIdOf(request) }, `${method} ${url} ${status}`);
    done();
  });
}
