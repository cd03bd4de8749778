import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import fastifyWebsocket, { type WebsocketPluginOptions } from '@fastify/websocket';
import Fastify, { type FastifyInstance, LogController } from 'fastify';
import type { Logger } from 'pino';
import { RunReader } from '../shared/dashboard/reader/run-reader.ts';
import { addDashboard } from '../shared/dashboard/routes.ts';
import { AllowedHosts } from '../shared/http/allowed-hosts.ts';
import { REPLY_HEADERS, securePages, secureReplies } from '../shared/http/page-security.ts';
import type { Json } from '../shared/json.ts';
import { outputLog } from '../shared/log-text.ts';
import type { ClusterMembership } from './cluster/membership.ts';
import { requestHandlers } from './cluster/request-handlers.ts';
import { DEFAULT_SETTINGS, type Settings } from './config/settings.ts';
import { Registrations } from './custom/registrations.ts';
import { NetworkGuard } from './custom/remote/guard.ts';
import { RemoteNetwork } from './custom/remote/network.ts';
import { HeaderSecrets } from './custom/remote/secrets.ts';
import { ScriptPool } from './custom/script/pool.ts';
import { createRegistry, type Registry } from './environments/registry.ts';
import { Dispatcher } from './operations/dispatch/dispatcher.ts';
import { announceChange, countOpenSessions } from './operations/dispatch/sibling-workers.ts';
import { sessionView } from './operations/sessions/views.ts';
import { type JournalFiles, newRun } from './persistence/journal/segments.ts';
import { type FolderLock, lockFolder } from './persistence/lock.ts';
import { PersistenceHealth } from './persistence/persistence-health.ts';
import { checkDatabase, openStore, type Store } from './persistence/store.ts';
import { Problem } from './problems.ts';
import { scheduler } from './scheduling/fair-scheduler.ts';
import type { ServerClock } from './sessions/limits/server-clock.ts';
import { SessionManager } from './sessions/manager.ts';
import { ownershipOf } from './sessions/placement.ts';
import type { Principal } from './sessions/principal.ts';
import { openSessionPersistence } from './sessions/storage/session-persistence.ts';
import { VariantCatalog } from './sessions/variant-catalog.ts';
import { Authenticator } from './transports/access/auth.ts';
import { ConnectionLimit, connectionsByFiles } from './transports/access/connection-limit.ts';
import { AllowedOrigins, shareWithOrigins } from './transports/access/origins.ts';
import { addCompatibleTransports, authorizationOf } from './transports/compatible.ts';
import { addPages } from './transports/monitoring/health.ts';
import { logRequests } from './transports/monitoring/log-requests.ts';
import { createMetrics, metricsText } from './transports/monitoring/metrics.ts';
import { countRequests, NO_ROUTE, RequestCounts } from './transports/monitoring/request-counts.ts';
import { traceRequests } from './transports/monitoring/trace-requests.ts';
import type { OpenTelemetry } from './transports/monitoring/tracing/open-telemetry.ts';
import { readTracingSettings } from './transports/monitoring/tracing/settings.ts';
import { readJson, writeContent } from './transports/replies/content.ts';
import { ProblemHandler } from './transports/replies/problem-handler.ts';
import { answerUnrouted } from './transports/replies/unrouted.ts';
import { networkOf, PacedRequests } from './transports/rest/paced-requests.ts';
import { PlainRequests } from './transports/rest/plain-requests.ts';
import { addRestRoutes, restRoutes } from './transports/rest/rest.ts';
import { PacedWebSocket } from './transports/websocket/paced-websocket.ts';
import { chooseSubprotocol } from './transports/websocket/protocol.ts';
import { addWebSocketRoute } from './transports/websocket/websocket.ts';
import { addPlayground } from './web/routes.ts';

declare module 'fastify' {
  interface FastifyRequest {
    principal: Principal;
  }
}

/** Parts that tests replace. */
export interface AppParts {
  readonly registry?: Registry;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  /** The time by which sessions expire; that of `now` where it is given. */
  readonly clock?: ServerClock;
  readonly log?: Logger;
  /** Kept instead of one in `data`, whose health goes with it. */
  readonly storage?: { readonly store: Store; readonly health: PersistenceHealth };
  /** What the journal writes to. */
  readonly journalFiles?: JournalFiles;
  /** For one of several processes that serve together. */
  readonly membership?: ClusterMembership;
}

export interface App {
  readonly server: FastifyInstance;
  readonly sessions: SessionManager;
  readonly registrations: Registrations;
  readonly authenticator: Authenticator;
  readonly log: Logger;
  /**
   * Refuses what is new, lets what is under way finish, stores the sessions and closes the server.
   * @param graceMs how long it may take to finish; what is not done by then is as if it had not begun
   */
  shutDown(graceMs: number): Promise<void>;
  /** Stores the sessions as they stand, for a process that ends at once. */
  keepSessions(): void;
}

type WebSocketOptions = NonNullable<WebsocketPluginOptions['options']>;

/** Close code of a server that goes down (RFC 6455, section 7.4.1). */
const GOING_AWAY = 1001;
/** In the folder of the database. */
const HEADER_KEY_FILE = 'headers.key';
/** What clients get to end their connections when the server closes. */
const CLOSE_MS = 2000;
const BYTES_PER_MB = 1024 * 1024;
/** What a client may take to send a request. */
const REQUEST_TIMEOUT_MS = 60_000;
/** What the parts of a server may take to start on a busy machine; Fastify gives up after ten seconds. */
const START_TIMEOUT_MS = 300_000;
/** How often Node looks for those that take longer; its default is half a minute. */
const SLOW_REQUESTS_CHECK_MS = 1000;
/** Routes that need no token. */
const OPEN =
  /^\/((livez|readyz|openapi\.json|docs|assets)(\/|\?|$)|runs(\/(assets\/[^?]*|site\.json)?)?(\?|$)|(compat\/ors\/)?health(\?|$)|compat\/openenv\/[^?]+\/health$|\?|$)/;

/**
 * Puts a server together; it listens nowhere yet.
 *
 * @example
 * const { server } = await createApp();
 * await server.inject({ method: 'POST', url: '/v1/sessions', payload: { env_id: 'FrozenLake-v0' } });
 */
export async function createApp(given: Partial<Settings> = {}, parts: AppParts = {}): Promise<App> {
  const settings: Settings = { ...DEFAULT_SETTINGS, ...given };
  const log = parts.log ?? outputLog(settings.logLevel);
  const tracing = await openTracing(log);
  const authenticator = new Authenticator(settings.tokens);
  const hosts = new AllowedHosts(settings, (code, detail) => new Problem(code, detail));
  const origins = new AllowedOrigins(settings.corsOrigins);
  const counts = new RequestCounts();
  const problemHandler = new ProblemHandler(log);
  const { membership } = parts;
  const siblings = membership?.channels;
  const sessions = new SessionManager(
    settings,
    parts.clock ?? parts.now,
    membership && { placement: membership.channels.placement, counts: membership.counts },
  );
  if (membership && membership.restarts > 0) sessions.recallCrash();
  const persistence = parts.storage?.health ?? new PersistenceHealth(log);
  const registry = parts.registry ?? createRegistry();
  const catalog = new VariantCatalog(registry);
  const folder = settings.data === '' ? membership?.folder : settings.data;
  // What a refused server must not touch is opened under the lock.
  const lock = membership || settings.data === '' ? undefined : lockFolder(settings.data);
  const store = parts.storage?.store ?? openChecked(folder, settings.data === '', persistence, lock);
  const scripts = new ScriptPool({
    workers: settings.scriptWorkers,
    timeMs: settings.scriptTimeMs,
    memoryBytes: settings.scriptMemoryMb * BYTES_PER_MB,
    outputLength: settings.scriptOutputLength,
    valueBytes: settings.answerValueBytes,
  });
  const network = new RemoteNetwork(
    new NetworkGuard(settings, undefined, refusal =>
      log.info(refusal, `${refusal.host} may not be reached: its address lies in ${refusal.network}`),
    ),
    new HeaderSecrets({ ...settings, keyFile: headerKeyFile(settings, membership?.folder) }),
    settings.answerValueBytes,
  );
  const registrations = new Registrations({
    context: { registry, scripts, network },
    store,
    log,
    limits: settings,
    sessionsOf: envId => countOpenSessions(catalog.sessionsOf(envId), envId, siblings),
    announce: siblings && (() => announceChange(siblings)),
    now: parts.now ?? Date.now,
  });
  registrations.start();
  const sessionPersistence = openSessionPersistence(settings, {
    sessions,
    catalog,
    log,
    editionOf: envId => registrations.edition(envId),
    viewOf: session => sessionView(session) as unknown as Json,
    health: persistence,
    writer: { run: membership?.run ?? newRun(), ...(siblings?.placement ?? { index: 0, count: 1 }) },
    share: siblings && ownershipOf(siblings.placement),
    files: parts.journalFiles,
  });
  const dispatcher = new Dispatcher({
    sessions,
    catalog,
    registrations,
    stepTimeoutMs: settings.stepTimeoutMs,
    tracing,
    siblings,
  });
  const server = Fastify({
    loggerInstance: log,
    logController: new LogController({ disableRequestLogging: true }),
    bodyLimit: settings.bodyLimitBytes,
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

  // A separate logger for every request costs more than a step.
  server.setChildLoggerFactory(logger => logger);
  server.decorateRequest('principal');
  server.decorateRequest('trace', undefined);
  server.setErrorHandler((error, request, reply) => problemHandler.reply(error, request, reply));
  answerUnrouted(server, problemHandler);
  if (tracing) traceRequests(server, tracing);
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
  server.server.on('checkExpectation', server.routing);
  server.server.on('connect', (_request, socket) =>
    problemHandler.refuse(new Error('this is no proxy'), socket),
  );
  const paced = new PacedRequests(scheduler, request => nameOf(request, authenticator));
  new ConnectionLimit({
    most: Math.min(settings.maxConnections, connectionsByFiles()),
    networkOf,
    useOf: socket => paced.useOf(socket),
    log,
  }).watch(server.server);
  readJson(server, settings.bodyLimitBytes, request => paced.laneOf(request));
  const routes = restRoutes(dispatcher, problemHandler, settings.maxBatchItems);
  await addRestRoutes(server, routes);
  let sockets: ReadonlySet<PacedWebSocket> = new Set();
  let cut: NodeJS.Timeout | undefined;
  server.addHook('preClose', done => {
    // A client in the middle of a request, or one that does not answer the end of its WebSocket, would be waited for.
    cut = setTimeout(() => {
      for (const socket of sockets) socket.terminate();
      server.server.closeAllConnections();
    }, CLOSE_MS);
    done();
  });
  // In a separate scope: the plugin adds to every request in it.
  await server.register(async scope => {
    await scope.register(fastifyWebsocket, {
      errorHandler(error, socket) {
        problemHandler.noteSocketError(error);
        socket.terminate();
      },
      preClose(done) {
        for (const socket of sockets) socket.close(GOING_AWAY, 'the server is shutting down');
        this.websocketServer.close(done);
      },
      options: {
        WebSocket: PacedWebSocket as unknown as WebSocketOptions['WebSocket'],
        // Pongs are sent in turns as well.
        autoPong: false,
        maxPayload: settings.bodyLimitBytes,
        handleProtocols: protocols => chooseSubprotocol(protocols) ?? false,
      },
    });
    sockets = scope.websocketServer.clients as Set<PacedWebSocket>;
    scope.websocketServer.on('connection', (socket: PacedWebSocket, request) => {
      socket.pace(request.socket, paced.laneOf(request), settings.maxFramesInFlight);
    });
    scope.websocketServer.on('wsClientError', (error, socket) => problemHandler.refuse(error, socket));
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
    addWebSocketRoute(scope, dispatcher, problemHandler, settings);
    await addCompatibleTransports(scope, dispatcher, problemHandler, settings);
  });
  await server.register(async pages => {
    await securePages(pages);
    addPlayground(pages, settings.runs !== '');
    if (settings.runs !== '') {
      addDashboard(pages, { reader: new RunReader(settings.runs), site: { server: '../', api: '../' } });
    }
  });
  const metrics = createMetrics({
    services: dispatcher.services,
    problemHandler,
    requests: counts,
    sockets: () => sockets.size,
    restarts: membership?.restarts,
    persistence: store.durable ? persistence : undefined,
  });
  await addPages(server, sessions, persistence, () => metricsText(metrics, siblings));
  // What traces or logs every request sees those that go through Fastify only.
  const direct = !tracing && !log.isLevelEnabled('debug');
  const { bodyLimitBytes } = settings;
  paced.pace(
    server.server,
    direct
      ? new PlainRequests(routes, { authenticator, hosts, counts, problemHandler, sessions, bodyLimitBytes })
      : undefined,
  );
  sessionPersistence?.start();
  sessions.start();
  await membership?.channels.listen(requestHandlers({ server, dispatcher, registrations, metrics, log }));
  server.addHook('onClose', async () => {
    clearTimeout(cut);
    sessionPersistence?.finish();
    sessions.stop();
    registrations.stop();
    await store.close();
    lock?.release();
    await Promise.all([scripts.close(), network.close(), tracing?.close(), membership?.channels.close()]);
  });
  const shutDown = async (graceMs: number) => {
    const unfinished = await Promise.all([
      sessions.suspend(graceMs),
      membership?.channels.settle(graceMs) ?? 0,
    ]);
    const late = unfinished[0] + unfinished[1];
    sessionPersistence?.finish();
    if (late > 0) {
      log.warn({ late }, `${late} operations were not done in time`);
      for (const socket of sockets) socket.terminate();
      server.server.closeAllConnections();
    }
    await server.close();
  };
  return {
    server,
    sessions,
    registrations,
    authenticator,
    log,
    shutDown,
    keepSessions: () => sessionPersistence?.finish(),
  };
}

/** Under the lock of the folder, or that of the supervisor, who has checked the database. */
function openChecked(
  folder: string | undefined,
  passing: boolean,
  health: PersistenceHealth,
  lock: FolderLock | undefined,
): Store {
  try {
    if (lock && folder !== undefined) checkDatabase(folder);
    return openStore(folder, passing, health);
  } catch (error) {
    lock?.release();
    throw error;
  }
}

/** Where the key for headers is kept; undefined where nothing is. */
function headerKeyFile(settings: Settings, commonFolder: string | undefined): string | undefined {
  if (settings.headerKeyFile !== '') return settings.headerKeyFile;
  const folder = settings.data === '' ? commonFolder : settings.data;
  return folder === undefined ? undefined : join(folder, HEADER_KEY_FILE);
}

/** Where the standard variables ask for traces; else nothing of it is loaded. */
async function openTracing(log: Logger): Promise<OpenTelemetry | undefined> {
  const settings = readTracingSettings(process.env);
  if (!settings) return undefined;
  const { OpenTelemetry } = await import('./transports/monitoring/tracing/open-telemetry.ts');
  return new OpenTelemetry(settings, log);
}

/** A request to upgrade that was answered instead leaves a socket that nobody reads from any more. */
function leaveUpgrade({ headers, socket }: IncomingMessage): void {
  if (headers.upgrade !== undefined) socket.destroySoon();
}

/** The name of the token that a request carries; undefined where it carries none that is valid, or where there are no tokens. */
function nameOf(request: IncomingMessage, authenticator: Authenticator): string | undefined {
  if (!authenticator.required) return undefined;
  try {
    return authenticator.principal(authorizationOf(request)).name;
  } catch {
    return undefined;
  }
}
