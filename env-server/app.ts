import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Logger } from 'pino';
import { AllowedHosts, securePages } from '../shared/http/security.ts';
import { outputLog } from '../shared/log-text.ts';
import { VERSION } from '../shared/program.ts';
import { lazy } from '../shared/remembered.ts';
import { withoutQuery } from '../shared/text.ts';
import { Assets, LOOK } from '../site/server/assets.ts';
import { DEFAULT_SETTINGS, type Settings } from './config/settings.ts';
import { type CoreParts, ServerCore } from './core.ts';
import type { Registrations } from './custom/registrations/registrations.ts';
import type { PersistenceHealth } from './persistence/persistence-health.ts';
import { Problem } from './problems.ts';
import { scheduler } from './scheduling/fair-scheduler.ts';
import type { SessionManager } from './sessions/manager.ts';
import { resuming } from './stages/stages.ts';
import {
  AllowedOrigins,
  Authenticator,
  authorizationOf,
  ConnectionLimit,
  connectionsByFiles,
} from './transports/access/auth.ts';
import { addCompatibleTransports } from './transports/compatible.ts';
import { createHttpServer, OpenSockets } from './transports/http-server.ts';
import type { MetricSources } from './transports/monitoring/metrics.ts';
import type { OpenTelemetry } from './transports/monitoring/open-telemetry.ts';
import { RequestCounts, readTracingSettings } from './transports/monitoring/trace-requests.ts';
import { JSON_TYPE, readJson, revalidateReplies } from './transports/replies/content.ts';
import { ProblemHandler } from './transports/replies/problem-handler.ts';
import { PacedRequests } from './transports/rest/paced-requests.ts';
import { addRestRoutes } from './transports/rest/rest.ts';
import { addWebSocketRoute } from './transports/websocket/websocket.ts';

/** Seconds after which a client of a server that shuts down asks again. */
const RETRY_AFTER_SECONDS = 5;

/** Parts that tests replace. */
export interface AppParts extends CoreParts {
  readonly log?: Logger;
}

export interface App {
  readonly server: FastifyInstance;
  readonly sessions: SessionManager;
  readonly registrations: Registrations;
  readonly log: Logger;
  /**
   * Stops accepting new work, finishes work in progress, stores the sessions and closes the server.
   * @param graceMs how long work in progress may take; unfinished operations have no effect
   */
  shutDown(graceMs: number): Promise<void>;
  /** Stores the sessions as they are, for a process that exits at once. */
  keepSessions(): void;
}

/**
 * Puts a server together; it listens nowhere yet.
 *
 * @example
 * const { server } = await createApp();
 * await server.inject({ method: 'POST', url: '/v1/sessions', payload: { env_id: 'FrozenLake-v0' } });
 */
export async function createApp(given: Partial<Settings> = {}, parts: AppParts = {}): Promise<App> {
  const settings: Settings = { ...DEFAULT_SETTINGS, ...given };
  const { bodyLimitBytes } = settings;
  const log = parts.log ?? outputLog(settings.logLevel);
  const tracing = await openTracing(log);
  const authenticator = new Authenticator(settings.tokens);
  const hosts = new AllowedHosts(settings, (code, detail) => new Problem(code, detail));
  const origins = new AllowedOrigins(settings.corsOrigins);
  const counts = new RequestCounts();
  const problemHandler = new ProblemHandler(log);
  const shared = parts.shared ?? (await openSharedStore(settings, log));
  const core = new ServerCore(settings, { ...parts, shared }, log, tracing);
  const { sessions, registrations, dispatcher, health, store } = core;
  const access = { authenticator, hosts, origins };
  const http = { ...access, counts, problemHandler, sessions, bodyLimitBytes, log, tracing };
  const server = await createHttpServer(http);
  const paced = pacedRequests(server, settings, authenticator, log);
  readJson(server, bodyLimitBytes, paced);
  await addRestRoutes(server, dispatcher, { ...settings, problemHandler });
  const sockets = new OpenSockets(server, { ...settings, problemHandler, paced });
  await sockets.accept(async scope => {
    addWebSocketRoute(scope, dispatcher, problemHandler, settings);
    await addCompatibleTransports(scope, dispatcher, problemHandler, settings);
  });
  await addSite(server, settings.runs, authenticator);
  const metrics = metricsOf({
    services: dispatcher.services,
    problemHandler,
    requests: counts,
    sockets: () => sockets.size,
    persistence: store.durable ? health : undefined,
  });
  addHealth(server, sessions, health, metrics);
  await addReference(server);
  paced.pace(server.server);
  await core.start();
  server.addHook('onClose', () => {
    sockets.closed();
    return core.close();
  });
  const shutDown = async (graceMs: number) => {
    const late = await core.settle(graceMs);
    if (late > 0) {
      log.warn({ late }, `${late} operations were not done in time`);
      sockets.cutConnections();
    }
    await server.close();
  };
  const keepSessions = () => core.keepSessions();
  return { server, sessions, registrations, log, shutDown, keepSessions };
}

/** The store that several servers share, if `--store` names one. */
async function openSharedStore({ store, durability }: Settings, log: Logger): Promise<CoreParts['shared']> {
  if (store === '') return undefined;
  const [{ storeAddressOf }, { StoreConnection }, { ValkeySessionStore }, { SharedEnvironments }] =
    await Promise.all([
      import('./store/address.ts'),
      import('./store/connection.ts'),
      import('./store/valkey-session-store.ts'),
      import('./store/shared-environments.ts'),
    ]);
  const connection = await StoreConnection.open(storeAddressOf(store), durability, log);
  const sessions = new ValkeySessionStore(connection, randomUUID());
  return { sessions, environments: await SharedEnvironments.open(connection, log) };
}

/** Schedules requests fairly and limits connections. */
function pacedRequests(
  server: FastifyInstance,
  settings: Settings,
  authenticator: Authenticator,
  log: Logger,
): PacedRequests {
  const paced = new PacedRequests(scheduler, request => nameOf(request, authenticator));
  new ConnectionLimit({
    most: Math.min(settings.maxConnections, connectionsByFiles()),
    useOf: socket => paced.useOf(socket),
    log,
  }).watch(server.server);
  return paced;
}

/** The pages for people: the playground and, with a folder of training runs, the dashboard. */
async function addSite(server: FastifyInstance, runs: string, authenticator: Authenticator): Promise<void> {
  await server.register(async pages => {
    await securePages(pages);
    addPlayground(pages, runs !== '');
    if (runs !== '') {
      const [{ addDashboard }, { RunReader }] = await Promise.all([
        import('../site/server/routes.ts'),
        import('../site/server/reader/run-reader.ts'),
      ]);
      addDashboard(pages, {
        reader: new RunReader(runs),
        site: { server: '../', api: '../' },
        // Without tokens anyone on this machine could control trainers.
        ...(authenticator.required
          ? { deniesControl: request => controlProblemOf(request, authenticator) }
          : {}),
      });
    }
  });
}

/** The reason why a request may not control trainers. */
function controlProblemOf({ headers }: FastifyRequest, authenticator: Authenticator) {
  if (authenticator.principal(headers.authorization).scopes.has('admin')) return undefined;
  return { status: 403, detail: 'controlling a trainer needs a token with the scope admin' } as const;
}

/** Health, readiness and metrics. */
function addHealth(
  app: FastifyInstance,
  sessions: SessionManager,
  persistence: PersistenceHealth,
  metrics: () => Promise<{ readonly type: string; readonly text: string }>,
): void {
  const alive = { status: 'ok', version: VERSION };
  app.get('/livez', (_request, reply) => reply.send(alive));
  app.get('/readyz', (_request, reply) => {
    if (sessions.shutdown.draining) {
      throw new Problem('draining', 'the server is shutting down', {
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    if (sessions.resumption) throw resuming();
    if (sessions.recorder?.isShared) sessions.recorder.requireRoom();
    const problem = persistence.problem();
    if (problem) throw problem;
    return reply.send({ ...alive, persistence: persistence.report() });
  });
  app.get('/metrics', async (request, reply) => {
    if (!request.principal.scopes.has('admin')) {
      throw new Problem('forbidden', 'metrics need a token with the scope admin');
    }
    const { type, text } = await metrics();
    return reply.type(type).send(text);
  });
}

/** The text of the metrics. Process metrics are loaded, and start, with the first scrape. */
function metricsOf(sources: MetricSources): () => Promise<{ type: string; text: string }> {
  const loaded = lazy(async () => {
    const { createMetrics } = await import('./transports/monitoring/metrics.ts');
    return createMetrics(sources);
  });
  return async () => {
    const registry = await loaded();
    return { type: registry.contentType, text: await registry.metrics() };
  };
}

/** Optional packages of `ragen-env-server`, which users of tracing install. */
const TRACING_PACKAGES = ['api', 'core', 'exporter-trace-otlp-proto', 'resources', 'sdk-trace']
  .map(name => `@opentelemetry/${name}`)
  .join(' ');

/** Tracing, loaded only if the standard variables ask for it. */
async function openTracing(log: Logger): Promise<OpenTelemetry | undefined> {
  const settings = readTracingSettings(process.env);
  if (!settings) return undefined;
  try {
    const { OpenTelemetry } = await import('./transports/monitoring/open-telemetry.ts');
    return new OpenTelemetry(settings, log);
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new Error(
      `traces, which variables that begin with OTEL_ ask for, need packages that are not installed (npm install ${TRACING_PACKAGES}): ${message}`,
    );
  }
}

/** The name of the request's token; undefined where it has no valid token, or the server has none. */
function nameOf(request: IncomingMessage, authenticator: Authenticator): string | undefined {
  if (!authenticator.required) return undefined;
  try {
    return authenticator.principal(authorizationOf(request)).name;
  } catch {
    return undefined;
  }
}

/** The OpenAPI document of the page at `/docs/`, made on first request. */
async function addReference(app: FastifyInstance): Promise<void> {
  const text = lazy(async () =>
    JSON.stringify((await import('./transports/rest/openapi.ts')).openApiDocument()),
  );
  await app.register(async scope => {
    await revalidateReplies(scope);
    for (const url of ['/openapi.json', '/docs/json']) {
      scope.get(url, async (_request, reply) => reply.type(JSON_TYPE).send(await text()));
    }
  });
}

const PAGE = 'site/playground';
const REFERENCE = 'site/reference';

/** Opening tags of the page: the server sets the attributes of `html`. */
const NO_RUNS = '<html lang="en">';
const WITH_RUNS = '<html lang="en" data-runs="runs/">';

/**
 * The playground at `/`, the reference at `/docs/`, the gallery of components, and what these load below `/assets/`.
 * @param hasRuns whether the server shows training runs, so that the page links them
 */
function addPlayground(app: FastifyInstance, hasRuns = false): void {
  const assets = new Assets([PAGE, REFERENCE, ...LOOK]);
  const routes = [
    { url: '/', pathOf: () => `${PAGE}/page.html` },
    { url: '/docs/', pathOf: () => `${REFERENCE}/page.html` },
    { url: '/site/components', pathOf: () => 'site/components/gallery.html' },
    { url: '/assets/*', pathOf: (rest: string) => rest },
  ];
  app.get('/docs', (_request, reply) => reply.redirect('docs/'));
  for (const { url, pathOf } of routes) {
    app.get<{ Params: { '*': string } }>(url, async (request, reply) => {
      const asset = await assets.find(pathOf(request.params['*']));
      if (!asset) throw new Problem('not_found', `there is no ${withoutQuery(request.url)}`);
      const linked = hasRuns && (url === '/' || url === '/docs/');
      const etag = linked ? asset.etag.replace(/"$/, '-runs"') : asset.etag;
      reply.headers({ etag, 'cache-control': asset.cacheControl });
      if (request.headers['if-none-match'] === etag) return reply.code(304).send();
      return reply
        .type(asset.contentType)
        .send(linked ? String(asset.body).replace(NO_RUNS, WITH_RUNS) : asset.body);
    });
  }
}
