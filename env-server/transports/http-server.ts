import { createRequire } from 'node:module';
import Fastify, { type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { joinChunks } from '../../shared/http/chunks.ts';
import { compressReplies } from '../../shared/http/compression.ts';
import { type AllowedHosts, REPLY_HEADERS } from '../../shared/http/security.ts';
import { withoutQuery } from '../../shared/text.ts';
import { Problem } from '../problems.ts';
import type { SessionManager } from '../sessions/manager.ts';
import type { Principal } from '../sessions/principal.ts';
import { type AllowedOrigins, type Authenticator, authorizationOf, shareWithOrigins } from './access/auth.ts';
import type { OpenTelemetry } from './monitoring/open-telemetry.ts';
import {
  countUpgrades,
  NO_ROUTE,
  type RequestCounts,
  traceIdOf,
  traceRequests,
} from './monitoring/trace-requests.ts';
import { contentOf, takePretty } from './replies/content.ts';
import { type ProblemHandler, shortened } from './replies/problem-handler.ts';
import type { PacedRequests } from './rest/paced-requests.ts';
import { PacedWebSocket } from './websocket/paced-websocket.ts';
import { chooseSubprotocol } from './websocket/protocol.ts';

interface Route {
  readonly method: string;
  /** Segments of its path. */
  readonly pattern: readonly string[];
}

/**
 * Answers requests without a route: `method_not_allowed` with `Allow` (RFC 9110, section 15.5.6) where the path has
 * routes for other methods, otherwise `not_found`. Call it before adding routes.
 */
function answerUnrouted(app: FastifyInstance, problemHandler: ProblemHandler): void {
  const routes: Route[] = [];
  app.addHook('onRoute', ({ method, url }) => {
    // For preflights.
    if (url === '*') return;
    for (const each of [method].flat()) routes.push({ method: each, pattern: url.split('/') });
  });
  app.setNotFoundHandler((request, reply) => {
    const { method, url } = request;
    const [path] = url.split('?', 1);
    const segments = path.split('/');
    const allowed = new Set(routes.filter(route => fits(route, segments)).map(route => route.method));
    if (allowed.size === 0 || allowed.has(method)) {
      const encoded = routes.map(route => withEncodedSlash(route, method, segments)).find(Boolean);
      const hint = encoded
        ? `; where an environment id has a slash, the path has %2F: ${encoded}`
        : '; /docs shows the routes';
      const detail = `there is no ${method} ${shortened(path)}${hint}`;
      return problemHandler.reply(new Problem('not_found', detail), request, reply);
    }
    const list = [...allowed].join(', ');
    reply.header('allow', list);
    return problemHandler.reply(
      new Problem('method_not_allowed', `${path} takes ${list}, not ${method}`),
      request,
      reply,
    );
  });
}

/** The path that would fit a route if one slash of its environment id were encoded. */
function withEncodedSlash(route: Route, method: string, path: readonly string[]): string | undefined {
  const at = route.pattern.indexOf(':env_id');
  if (at < 0 || route.method !== method || !path[at] || !path[at + 1]) return undefined;
  const joined = path.toSpliced(at, 2, `${path[at]}%2F${path[at + 1]}`);
  return fits(route, joined) ? shortened(joined.join('/')) : undefined;
}

/** `:name` matches any segment, `:name(…)` one that fits the pattern, `*` the rest of the path. */
function fits({ pattern }: Route, path: readonly string[]): boolean {
  if (pattern.length !== path.length && pattern.at(-1) !== '*') return false;
  return pattern.every((part, i) => {
    if (part.startsWith(':')) return path[i] !== undefined && path[i] !== '' && formOf(part).test(path[i]);
    return part === '*' || part === path[i];
  });
}

const ANY = /./;

/** Pattern of a route parameter's values. */
function formOf(part: string): RegExp {
  const open = part.indexOf('(');
  return open < 0 ? ANY : new RegExp(part.slice(open + 1, -1));
}

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
/** Milliseconds that a server's parts may take to start on a busy machine; Fastify's default is ten seconds. */
const START_TIMEOUT_MS = 300_000;
/** Milliseconds between Node's checks for slow requests; its default is half a minute. */
const SLOW_REQUESTS_CHECK_MS = 1000;
/** Routes that need no token. */
const OPEN =
  /^\/((livez|readyz|openapi\.json|docs|assets)(\/|\?|$)|runs(\/(assets\/[^?]*|site\.json)?)?(\?|$)|(compat\/ors\/)?health(\?|$)|compat\/openenv\/[^?]+\/health$|\?|$)/;

/** A server without routes, with everything they share: access, problems, counts, logs, traces and compression. */
export async function createHttpServer(parts: HttpServerParts): Promise<FastifyInstance> {
  const { problemHandler, tracing } = parts;
  const server = newServer(parts);
  joinChunks(server);
  server.decorateRequest('principal');
  server.decorateRequest('pretty', false);
  server.decorateRequest('trace', undefined);
  server.setErrorHandler((error, request, reply) => problemHandler.reply(error, request, reply));
  answerUnrouted(server, problemHandler);
  if (tracing) traceRequests(server, tracing);
  await addHooks(server, parts);
  server.server.on('checkExpectation', server.routing);
  server.server.on('connect', (_request, socket) =>
    problemHandler.refuse(new Error('this is not a proxy'), socket),
  );
  return server;
}

/**
 * Fastify's schema compilers, loaded for the first route that has a schema. The server's own routes have none; a
 * program that uses the server as a package may add some.
 */
const COMPILERS = {
  buildValidator: (...given: unknown[]) => partOfFastify('@fastify/ajv-compiler')()(...given),
  buildSerializer: (...given: unknown[]) =>
    partOfFastify('@fastify/fast-json-stringify-compiler')()(...given),
};

/** A package that Fastify depends on. */
function partOfFastify(name: string) {
  const requireFromFastify = createRequire(createRequire(import.meta.url).resolve('fastify'));
  return requireFromFastify(name) as () => (...given: unknown[]) => never;
}

function newServer({ problemHandler, counts, bodyLimitBytes }: HttpServerParts): FastifyInstance {
  return Fastify({
    bodyLimit: bodyLimitBytes,
    routerOptions: { maxParamLength: 256 },
    pluginTimeout: START_TIMEOUT_MS,
    requestTimeout: REQUEST_TIMEOUT_MS,
    return503OnClosing: false,
    schemaController: { compilersFactory: COMPILERS },
    // Node would send only a status.
    http: { requireHostHeader: false, connectionsCheckingInterval: SLOW_REQUESTS_CHECK_MS },
    clientErrorHandler: (error, socket) => problemHandler.refuse(error, socket),
    frameworkErrors(error, request, reply) {
      // These replies bypass the hooks.
      reply.raw.once('finish', () => counted(request, reply, counts));
      problemHandler.reply(error, request, reply.headers(REPLY_HEADERS));
    },
  }) as unknown as FastifyInstance;
}

/** Adds the hooks in the order in which requests pass them. */
async function addHooks(server: FastifyInstance, parts: HttpServerParts): Promise<void> {
  const { authenticator, hosts, origins, counts, sessions, log } = parts;
  server.addHook('onRequest', (request, reply, done) => {
    reply.headers(REPLY_HEADERS);
    hosts.check(request.raw);
    done();
  });
  await shareWithOrigins(server, origins);
  compressReplies(server);
  server.addHook('onRequest', (request, _reply, done) => {
    takePretty(request);
    if (request.raw.headers.origin !== undefined) origins.check(request);
    if (!OPEN.test(request.url)) request.principal = authenticator.principal(authorizationOf(request.raw));
    done();
  });
  countUpgrades(server, counts);
  server.addHook('onResponse', (request, reply, done) => {
    counted(request, reply, counts);
    done();
  });
  if (log.isLevelEnabled('debug')) logRequests(server, log);
  server.addHook('onSend', (request, reply, payload, done) => {
    const content = contentOf(request, reply, payload);
    sessions.deliver(() => done(null, content), request.method === 'GET');
  });
}

function counted(request: FastifyRequest, reply: FastifyReply, counts: RequestCounts): void {
  const { headers, socket } = request.raw;
  // An upgrade request that was answered instead leaves a socket that nobody reads.
  if (headers.upgrade !== undefined) socket.destroySoon();
  counts.add(request.method, request.routeOptions?.url ?? NO_ROUTE, reply.statusCode);
}

/** Logs every HTTP request with its reply, at level `debug`. */
function logRequests(app: FastifyInstance, log: Logger): void {
  app.addHook('onResponse', (request, reply, done) => {
    const { session_id } = (request.params ?? {}) as { session_id?: string };
    const { statusCode: status, elapsedTime } = reply;
    const { method } = request;
    const url = withoutQuery(request.url);
    const about = { method, url, status, ms: Math.round(elapsedTime * 1000) / 1000, session_id };
    log.debug({ ...about, trace_id: traceIdOf(request) }, `${method} ${url} ${status}`);
    done();
  });
}

import fastifyWebsocket, { type WebsocketPluginOptions } from '@fastify/websocket';

interface OpenSocketsParts {
  readonly problemHandler: ProblemHandler;
  readonly paced: PacedRequests;
  readonly bodyLimitBytes: number;
  readonly maxFramesInFlight: number;
}

type WebSocketOptions = NonNullable<WebsocketPluginOptions['options']>;

/** Close code of a server that shuts down (RFC 6455, section 7.4.1). */
const GOING_AWAY = 1001;
/** Milliseconds that clients get to end their connections when the server closes. */
const CLOSE_MS = 2000;

/** The WebSockets of a server: accepts them, and ends them and other connections when the server closes. */
export class OpenSockets {
  readonly #server: FastifyInstance;
  readonly #parts: OpenSocketsParts;
  #sockets: ReadonlySet<PacedWebSocket> = new Set();
  #cut: NodeJS.Timeout | undefined;

  constructor(server: FastifyInstance, parts: OpenSocketsParts) {
    this.#server = server;
    this.#parts = parts;
  }

  get size(): number {
    return this.#sockets.size;
  }

  /** @param addRoutes adds the WebSocket routes, and others, to a scope in which sockets are accepted */
  async accept(addRoutes: (scope: FastifyInstance) => Promise<void>): Promise<void> {
    this.#server.addHook('preClose', done => {
      // Otherwise the server would wait for a client in the middle of a request, or one that does not answer the WebSocket's
      // close.
      this.#cut = setTimeout(() => this.cutConnections(), CLOSE_MS);
      done();
    });
    // In a separate scope: the plugin adds to every request in it.
    await this.#server.register(async scope => {
      await this.#addPlugin(scope);
      refuseOtherRequests(scope);
      await addRoutes(scope);
    });
  }

  async #addPlugin(scope: FastifyInstance): Promise<void> {
    const { problemHandler, paced, bodyLimitBytes, maxFramesInFlight } = this.#parts;
    const goAway = () => {
      for (const socket of this.#sockets) socket.close(GOING_AWAY, 'the server is shutting down');
    };
    await scope.register(fastifyWebsocket, {
      errorHandler(error, socket) {
        problemHandler.noteSocketError(error);
        socket.terminate();
      },
      preClose(done) {
        goAway();
        this.websocketServer.close(done);
      },
      options: {
        WebSocket: PacedWebSocket as unknown as WebSocketOptions['WebSocket'],
        // Pongs are sent in turns as well.
        autoPong: false,
        maxPayload: bodyLimitBytes,
        handleProtocols: protocols => chooseSubprotocol(protocols) ?? false,
      },
    });
    this.#sockets = scope.websocketServer.clients as Set<PacedWebSocket>;
    scope.websocketServer.on('connection', (socket: PacedWebSocket, request) => {
      socket.pace(request.socket, paced.laneOf(request), maxFramesInFlight);
    });
    scope.websocketServer.on('wsClientError', (error, socket) => problemHandler.refuse(error, socket));
  }

  /** Ends every connection at once. */
  cutConnections(): void {
    for (const socket of this.#sockets) socket.terminate();
    this.#server.server.closeAllConnections();
  }

  /** Resolves when all connections have ended. */
  closed(): void {
    clearTimeout(this.#cut);
  }
}

/** Answers plain requests for WebSocket routes. */
function refuseOtherRequests(scope: FastifyInstance): void {
  scope.addHook('preValidation', (request, _reply, done) => {
    const isSocket = request.ws || !request.routeOptions.url?.endsWith('/ws');
    done(
      isSocket
        ? undefined
        : new Problem(
            'upgrade_required',
            `${request.routeOptions.url} is a WebSocket: connect to it with ws:// or wss://`,
          ),
    );
  });
}
