import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { TRAINER } from '../../shared/program.ts';
import {
  type Annotations,
  annotationsProblem,
  type ControlCommand,
  controlProblem,
  MAX_ANNOTATIONS_BYTES,
  MAX_CONTROL_BYTES,
} from '../../shared/run-folder/requests.ts';
import { listOf } from '../compute/run-query.ts';
import { Assets, RUN_PAGES } from './assets.ts';
import { LiveRuns } from './live.ts';
import type { RunReader } from './reader/run-reader.ts';
import { ControlRefused } from './reader/run-writes.ts';

const PAGE = 'site/runs';
const PREFIX = '/runs';
const LONGEST_QUERY = 1000;
/** Metrics that one request may name; names have their own bound by the length of an address. */
const MAX_NAMES = 200;
/** Rows of the table of runs that one reply has. */
const MAX_RUN_ROWS = 500;
/** Settings that the rows of one reply have. */
const MAX_COLUMNS = 32;

/** Status of a request that may not control trainers. */
interface ControlDenied {
  readonly status: 401 | 403;
  readonly detail: string;
}

/** Parts of the pages about runs. */
export interface DashboardParts {
  /** Returns why a request may not control trainers; undefined if it may. Without this part none may. */
  readonly deniesControl?: (request: FastifyRequest) => ControlDenied | undefined;
  readonly reader: RunReader;
  /** Addresses of the other parts of the site. */
  readonly site: Omit<SiteAddresses, 'trainer'>;
}

type Query = { readonly [key: string]: string | string[] | undefined };

/**
 * The pages about training runs below `/runs/`, and the JSON that they show below `/runs/api/`. Only the annotations of runs
 * can be written; the server behind `app` decides who may ask.
 * @param app scope of the headers of the pages
 */
export function addDashboard(app: FastifyInstance, { reader, site, deniesControl }: DashboardParts): void {
  const assets = new Assets(RUN_PAGES);
  app.get(PREFIX, (_request, reply) => reply.redirect('runs/'));
  for (const { url, pathOf } of [
    { url: `${PREFIX}/`, pathOf: () => `${PAGE}/page.html` },
    { url: `${PREFIX}/assets/*`, pathOf: (rest: string) => rest },
  ]) {
    app.get<{ Params: { '*': string } }>(url, async (request, reply) => {
      const asset = await assets.find(pathOf(request.params['*']));
      if (!asset) return refuse(reply, 404, `there is no ${request.url}`);
      reply.headers({ etag: asset.etag, 'cache-control': asset.cacheControl });
      if (request.headers['if-none-match'] === asset.etag) return reply.code(304).send();
      return reply.type(asset.contentType).send(asset.body);
    });
  }
  const addresses: SiteAddresses = { ...site, trainer: TRAINER, ...(deniesControl ? { control: true } : {}) };
  app.get(`${PREFIX}/site.json`, () => addresses);
  for (const [name, read] of Object.entries(READERS)) {
    app.get<{ Querystring: Query }>(`${PREFIX}/api/${name}`, async (request, reply) => {
      const wrong = wrongQuery(request.query);
      if (wrong) return refuse(reply, 400, wrong);
      const value = await read(reader, request.query as { readonly [key: string]: string });
      if (value === undefined) return refuse(reply, 404, 'there is no such run, file or episode');
      return reply.header('cache-control', 'no-store').send(value);
    });
  }
  addWriting(app, {
    method: 'PUT',
    name: 'annotations',
    bodyLimit: MAX_ANNOTATIONS_BYTES,
    problem: annotationsProblem,
    write: (id, body) => reader.annotate(id, body as Annotations),
  });
  if (deniesControl)
    addWriting(app, {
      method: 'POST',
      name: 'control',
      bodyLimit: MAX_CONTROL_BYTES,
      problem: controlProblem,
      write: (id, body) => reader.control(id, body as ControlCommand),
      denies: deniesControl,
    });
  app.addHook('onListen', done => {
    // The first page is to come as quickly as the others; its reader gets any error.
    const ready = [reader.runs({ limit: 1 }), ...assets.paths.map(path => assets.find(path))];
    void Promise.allSettled(ready);
    done();
  });
  const live = new LiveRuns(reader);
  app.addHook('preClose', done => {
    live.close();
    done();
  });
  app.get<{ Querystring: Query }>(`${PREFIX}/api/live`, async (request, reply) => {
    const { id, offset } = request.query;
    const run = typeof id === 'string' ? await reader.find(id) : undefined;
    if (!run) return refuse(reply, 404, 'there is no such run');
    const from = Number(offset ?? 0);
    if (!Number.isSafeInteger(from) || from < 0) return refuse(reply, 400, 'offset is a number of bytes');
    const stream = live.open(run, from);
    if (!stream) return refuse(reply, 503, 'too many pages watch runs already');
    reply.headers({ 'content-type': 'text/event-stream', 'cache-control': 'no-store, no-transform' });
    reply.header('x-accel-buffering', 'no');
    return reply.send(stream);
  });
}

/** A route by which pages write into the folder of a run. */
interface Writing {
  readonly method: 'PUT' | 'POST';
  readonly name: string;
  readonly bodyLimit: number;
  /** The fault of a body; undefined for a valid one. */
  readonly problem: (body: unknown) => string | undefined;
  /** @returns false where there is no such run */
  readonly write: (id: string, body: unknown) => Promise<boolean>;
  /** Refuses a request before its body is read: returns why. */
  readonly denies?: DashboardParts['deniesControl'];
}

function addWriting(
  app: FastifyInstance,
  { method, name, bodyLimit, problem, write, denies }: Writing,
): void {
  app.route<{ Querystring: Query }>({
    method,
    url: `${PREFIX}/api/${name}`,
    bodyLimit,
    errorHandler: refuseRequest,
    onRequest: async (request, reply) => {
      const denied = denies?.(request);
      if (denied) return refuse(reply, denied.status, denied.detail);
    },
    handler: async ({ query: { id }, body }, reply) => {
      const wrong = problem(body);
      if (wrong) return refuse(reply, 400, wrong);
      try {
        const found = typeof id === 'string' && (await write(id, body));
        return found ? reply.code(204).send() : refuse(reply, 404, 'there is no such run');
      } catch (error) {
        const { code = 'error' } = error as NodeJS.ErrnoException;
        const isRefused = error instanceof ControlRefused;
        return refuse(
          reply,
          409,
          isRefused ? error.message : `the run's folder cannot be written to: ${code}`,
        );
      }
    },
  });
}

type Reader = (reader: RunReader, query: { readonly [key: string]: string }) => Promise<unknown>;

/** Reader of each route; returns undefined for what is not there. */
const READERS: { readonly [name: string]: Reader } = {
  runs: (reader, { offset, limit, q, sort, settings }) =>
    reader.runs({
      offset: offset === undefined ? 0 : count(offset),
      limit: Math.min(MAX_RUN_ROWS, limit === undefined ? MAX_RUN_ROWS : count(limit)),
      q,
      sort,
      settings: settings === undefined ? [] : listOf(settings).slice(0, MAX_COLUMNS),
    }),
  'run-groups': async (reader, { by = '', q }) => (by === '' ? undefined : reader.runGroups(by, q)),
  'run-summary': (reader, { q }) => reader.summary(q),
  run: (reader, { id }) => reader.run(id),
  metrics: (reader, { id, names }) => reader.metrics(id, names === undefined ? undefined : listOf(names)),
  groups: (reader, { id, after }) => reader.groups(id, after === undefined ? undefined : count(after)),
  episodes: (reader, { id, file }) => reader.episodes(id, file),
  episode: (reader, { id, file, index }) => reader.episode(id, file, count(index)),
  search: (reader, { id, ...query }) => reader.search(id, query),
  leaderboard: reader => reader.leaderboard(),
  'signed-results': reader => reader.signedResults(),
};

function count(text: string): number {
  return /^\d{1,9}$/.test(text) ? Number(text) : 0;
}

function wrongQuery(query: Query): string | undefined {
  for (const [name, value] of Object.entries(query)) {
    if (typeof value !== 'string') return `\`${name}\` is in the query more than once`;
    if (name === 'names') {
      const count = value.split(',').length;
      if (count > MAX_NAMES)
        return `\`names\` has ${count} metrics, more than ${MAX_NAMES}: ask more than once`;
    } else if (value.length > LONGEST_QUERY) {
      return `\`${name}\` has ${value.length} characters, more than ${LONGEST_QUERY}`;
    }
  }
  return undefined;
}

/** Answers with a problem document. */
export function refuse(reply: FastifyReply, status: number, detail: string): FastifyReply {
  return reply
    .code(status)
    .type('application/problem+json')
    .send(JSON.stringify({ title: status === 404 ? 'Not found' : 'Refused', status, detail }));
}

/**
 * Answers a request that cannot be read, such as one with too large a body.
 * @throws the error where the fault is the server's
 */
export function refuseRequest(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): FastifyReply {
  const { statusCode = 500, message } = error;
  if (statusCode >= 500) throw error;
  const { bodyLimit } = request.routeOptions;
  return refuse(
    reply,
    statusCode,
    statusCode === 413 ? `the body is larger than the ${bodyLimit} bytes that this route takes` : message,
  );
}

/** Addresses of the parts of the site, as served in `/runs/site.json`; null for a missing part. */
export interface SiteAddresses {
  /** The environment server's pages, ending in a slash. */
  readonly server: string | null;
  /** Prefix of requests to the environment server, ending in a slash: `<api>v1/sessions`. */
  readonly api: string | null;
  /** Prefix of trainer commands that the pages print. */
  readonly trainer: string;
  /** True if trainers can be controlled, with a token. */
  readonly control?: true;
  /** True if checkpoints of runs can be asked, with the same token. */
  readonly checkpoints?: true;
  /** True if the data is stored in files next to the page. */
  readonly exported?: true;
}
