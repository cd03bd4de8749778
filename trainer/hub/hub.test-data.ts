import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Files from this many bytes on are kept apart, as large ones are on the Hub (LFS). */
const LARGE_BYTES = 4096;

export type Files = Readonly<Record<string, Buffer | string>>;

/** Fault of a response: a status, half of it, other bytes, silence, or a redirect elsewhere. */
export type Fault = number | 'cut' | 'corrupt' | 'silent' | { readonly redirect: string };

interface StoredModel {
  /** Files of each commit. */
  readonly commits: Map<string, Map<string, Buffer>>;
  readonly refs: Map<string, string>;
  gated: boolean;
  private: boolean;
}

/** A hub on loopback with the routes of the Hugging Face Hub, and a second address from which it sends large files. */
export interface TestHub {
  readonly endpoint: string;
  /** `METHOD path`, with ` +token` where one came along, of both addresses. */
  readonly log: string[];
  readonly models: ReadonlyMap<string, StoredModel>;
  /** Adds a commit and moves a branch to it. @returns the commit */
  put(id: string, files: Files, options?: { readonly branch?: string; readonly gated?: boolean }): string;
  /** Called with every request; undefined lets it pass. */
  fault: (request: IncomingMessage, path: string) => Fault | undefined;
  close(): Promise<void>;
}

/** The token that gated and private models, and changes, take. */
export const TEST_TOKEN = 'hf_test_token';

export async function startHub(): Promise<TestHub> {
  const models = new Map<string, StoredModel>();
  const uploads = new Map<string, Buffer>();
  const log: string[] = [];
  const context = { models, uploads, log, store: '', endpoint: '' };
  const hub: TestHub = {
    endpoint: '',
    log,
    models,
    put: (id, files, { branch = 'main', gated = false } = {}) => {
      const model = modelOf(models, id);
      model.gated = gated;
      return commitFiles(
        model,
        branch,
        new Map(Object.entries(files).map(([name, data]) => [name, Buffer.from(data)])),
      );
    },
    fault: () => undefined,
    close: async () => {
      await Promise.all([closed(main), closed(store)]);
    },
  };
  const main = await listening((request, reply) => serve(context, hub, request, reply, 'hub'));
  const store = await listening((request, reply) => serve(context, hub, request, reply, 'store'));
  context.endpoint = addressOf(main);
  // Another host than the hub's, as clients see it.
  context.store = addressOf(store).replace('127.0.0.1', 'localhost');
  return Object.assign(hub, { endpoint: context.endpoint });
}

interface Context {
  readonly models: Map<string, StoredModel>;
  /** Uploads that are not committed yet, and all large files, by SHA-256. */
  readonly uploads: Map<string, Buffer>;
  readonly log: string[];
  store: string;
  endpoint: string;
}

async function serve(
  context: Context,
  hub: TestHub,
  request: IncomingMessage,
  reply: ServerResponse,
  which: 'hub' | 'store',
): Promise<unknown> {
  const path = decodeURIComponent(new URL(request.url!, 'http://hub').pathname);
  const token = request.headers.authorization?.replace('Bearer ', '');
  context.log.push(
    `${request.method} ${which === 'hub' ? '' : which}${path}${token === undefined ? '' : ' +token'}`,
  );
  const fault = hub.fault(request, path);
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const body = Buffer.concat(chunks);
  if (fault === 'silent') return;
  if (typeof fault === 'number')
    return reply.writeHead(fault, { 'retry-after': '0' }).end('{"error":"a fault"}');
  if (typeof fault === 'object') return reply.writeHead(302, { location: fault.redirect }).end();
  const sender = new Sender(request, reply, fault);
  if (which === 'store') {
    const oid = path.slice(1);
    if (request.method === 'PUT') {
      context.uploads.set(oid, body);
      reply.writeHead(200).end();
    } else
      sender.file(context.uploads.get(oid)!, { etag: `"${createHash('md5').update(oid).digest('hex')}"` });
    return;
  }
  answer(context, sender, { method: request.method!, path, token, body });
}

interface ReceivedRequest {
  readonly method: string;
  readonly path: string;
  readonly token: string | undefined;
  readonly body: Buffer;
}

function answer(context: Context, sender: Sender, asked: ReceivedRequest): unknown {
  const { method, path, token, body } = asked;
  const of = (pattern: RegExp) => pattern.exec(path)?.slice(1);
  if (path === '/api/whoami-v2') {
    return sender.json(token === TEST_TOKEN ? 200 : 401, {
      name: 'org',
      type: 'user',
      auth: { accessToken: { role: 'write' } },
    });
  }
  if (method !== 'GET' && method !== 'HEAD' && token !== TEST_TOKEN)
    return sender.json(401, { error: 'Invalid token' });
  if (path === '/api/repos/create') return createRepository(context, sender, body);
  const [info, revision] = of(/^\/api\/models\/([^/]+\/[^/]+)(?:\/revision\/(.+))?$/) ?? [];
  if (info !== undefined) return describe(context, sender, asked, info, revision ?? 'main');
  const [listed, treeAt] = of(/^\/api\/models\/([^/]+\/[^/]+)\/tree\/(.+)$/) ?? [];
  if (listed !== undefined) return listTree(context, sender, listed, treeAt);
  const [resolved, at, name] = of(/^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/) ?? [];
  if (resolved !== undefined) return resolveFile(context, sender, asked, resolved, at, name);
  const [preuploaded] = of(/^\/api\/models\/([^/]+\/[^/]+)\/preupload\/.+$/) ?? [];
  if (preuploaded !== undefined) {
    const { files } = JSON.parse(body.toString()) as { files: { path: string; size: number }[] };
    const modes = files.map(file => ({
      path: file.path,
      uploadMode: file.size >= LARGE_BYTES ? 'lfs' : 'regular',
      shouldIgnore: false,
      oid: null,
    }));
    return sender.json(200, { files: modes, commitOid: null });
  }
  if (of(/^\/([^/]+\/[^/]+)\.git\/info\/lfs\/objects\/batch$/)) {
    const { objects } = JSON.parse(body.toString()) as { objects: { oid: string; size: number }[] };
    const answers = objects.map(object => ({
      ...object,
      actions: { upload: { href: `${context.store}/${object.oid}`, header: {} } },
    }));
    return sender.json(200, { transfer: 'basic', objects: answers });
  }
  const [committed, branch] = of(/^\/api\/models\/([^/]+\/[^/]+)\/commit\/(.+)$/) ?? [];
  if (committed !== undefined) return commit(context, sender, body, committed, branch);
  sender.json(404, { error: `no route ${method} ${path}` });
}

function createRepository({ models, endpoint }: Context, sender: Sender, body: Buffer): unknown {
  const payload = JSON.parse(body.toString()) as {
    name: string;
    organization?: string;
    private?: boolean;
    visibility?: string;
  };
  const id = payload.name.includes('/') ? payload.name : `${payload.organization ?? 'org'}/${payload.name}`;
  const url = `${endpoint}/${id}`;
  if (models.has(id)) return sender.json(409, { error: 'You already created this model repo', url });
  modelOf(models, id).private = payload.private ?? payload.visibility === 'private';
  sender.json(200, { url, id, name: id });
}

function commit(
  { models, uploads, endpoint }: Context,
  sender: Sender,
  body: Buffer,
  id: string,
  branch: string,
): unknown {
  const model = models.get(id);
  if (model === undefined) return sender.json(404, { error: 'Repository not found' }, 'RepoNotFound');
  const before = model.commits.get(model.refs.get(branch) ?? '') ?? new Map<string, Buffer>();
  const files = new Map(before);
  for (const line of body.toString().trim().split('\n')) {
    const { key, value } = JSON.parse(line) as {
      key: string;
      value: { path: string; content: string; oid: string };
    };
    if (key === 'file') files.set(value.path, Buffer.from(value.content, 'base64'));
    if (key === 'lfsFile') files.set(value.path, uploads.get(value.oid)!);
  }
  const commitOid = commitFiles(model, branch, files);
  sender.json(200, {
    success: true,
    commitOid,
    commitUrl: `${endpoint}/${id}/commit/${commitOid}`,
    hookOutput: '',
  });
}

function describe(
  { models }: Context,
  sender: Sender,
  { token }: ReceivedRequest,
  id: string,
  revision: string,
): unknown {
  const model = models.get(id);
  if (model === undefined || (model.private && token !== TEST_TOKEN)) {
    return sender.json(token === undefined ? 401 : 404, { error: 'Repository not found' }, 'RepoNotFound');
  }
  const sha = model.refs.get(revision) ?? revision;
  const files = model.commits.get(sha);
  if (files === undefined)
    return sender.json(404, { error: `Invalid rev id: ${revision}` }, 'RevisionNotFound');
  sender.json(200, {
    id,
    modelId: id,
    sha,
    private: model.private,
    gated: model.gated ? 'manual' : false,
    siblings: [...files.keys()].map(rfilename => ({ rfilename })),
  });
}

function listTree({ models }: Context, sender: Sender, id: string, revision: string): unknown {
  const model = models.get(id);
  const files = model?.commits.get(model.refs.get(revision) ?? revision) ?? new Map<string, Buffer>();
  const entries = [...files].map(([path, data]) => {
    const lfs = { oid: createHash('sha256').update(data).digest('hex'), size: data.length, pointerSize: 130 };
    const large = data.length >= LARGE_BYTES ? { lfs } : {};
    return { type: 'file', path, size: data.length, oid: gitHash(data), ...large };
  });
  return sender.json(200, entries);
}

function resolveFile(
  { models, uploads, store }: Context,
  sender: Sender,
  { token }: ReceivedRequest,
  id: string,
  revision: string,
  name: string,
): unknown {
  const model = models.get(id);
  if (model === undefined) return sender.json(404, { error: 'Repository not found' }, 'RepoNotFound');
  if (model.gated && token !== TEST_TOKEN)
    return sender.json(401, { error: 'Access to this model is restricted' }, 'GatedRepo');
  const sha = model.refs.get(revision) ?? revision;
  const data = model.commits.get(sha)?.get(name);
  if (data === undefined) return sender.json(404, { error: 'Entry not found' }, 'EntryNotFound');
  const common = { 'x-repo-commit': sha };
  if (data.length < LARGE_BYTES) return sender.file(data, { ...common, etag: `"${gitHash(data)}"` });
  const oid = createHash('sha256').update(data).digest('hex');
  uploads.set(oid, data);
  sender.redirect(`${store}/${oid}`, {
    ...common,
    'x-linked-etag': `"${oid}"`,
    'x-linked-size': String(data.length),
    etag: `"${gitHash(data)}"`,
  });
}

/** Answers, with the fault that the request is to meet. */
class Sender {
  readonly #request: IncomingMessage;
  readonly #reply: ServerResponse;
  readonly #fault: 'cut' | 'corrupt' | undefined;

  constructor(request: IncomingMessage, reply: ServerResponse, fault: 'cut' | 'corrupt' | undefined) {
    this.#request = request;
    this.#reply = reply;
    this.#fault = fault;
  }

  json(status: number, value: unknown, code?: string): void {
    this.#reply.writeHead(status, {
      'content-type': 'application/json',
      ...(code ? { 'x-error-code': code } : {}),
    });
    this.#reply.end(JSON.stringify(value));
  }

  redirect(location: string, headers: Readonly<Record<string, string>>): void {
    this.#reply.writeHead(302, { location, ...headers, 'content-length': 0 }).end();
  }

  file(data: Buffer, headers: Readonly<Record<string, string>>): void {
    const range = /^bytes=(\d+)-/.exec(this.#request.headers.range ?? '');
    const start = range ? Number(range[1]) : 0;
    const part = data.subarray(start);
    const ranged = range ? { 'content-range': `bytes ${start}-${data.length - 1}/${data.length}` } : {};
    this.#reply.writeHead(range ? 206 : 200, {
      ...headers,
      ...ranged,
      'accept-ranges': 'bytes',
      'content-length': part.length,
    });
    if (this.#request.method === 'HEAD') this.#reply.end();
    else if (this.#fault === 'cut') {
      this.#reply.write(part.subarray(0, Math.ceil(part.length / 2)), () =>
        setTimeout(() => this.#reply.destroy(), 20),
      );
    } else this.#reply.end(this.#fault === 'corrupt' ? Buffer.from(part.map(byte => byte ^ 1)) : part);
  }
}

function modelOf(models: Map<string, StoredModel>, id: string): StoredModel {
  const known = models.get(id) ?? { commits: new Map(), refs: new Map(), gated: false, private: false };
  models.set(id, known);
  return known;
}

function commitFiles(model: StoredModel, branch: string, files: Map<string, Buffer>): string {
  const sha = createHash('sha1').update(`${model.commits.size}`);
  for (const [name, data] of files) sha.update(name).update(data);
  const commit = sha.digest('hex');
  model.commits.set(commit, files);
  model.refs.set(branch, commit);
  return commit;
}

function gitHash(data: Buffer): string {
  return createHash('sha1').update(`blob ${data.length}\0`).update(data).digest('hex');
}

async function listening(
  handler: (request: IncomingMessage, reply: ServerResponse) => Promise<unknown>,
): Promise<Server> {
  const server = createServer((request, reply) => void handler(request, reply).catch(() => reply.destroy()));
  server.listen(0, '127.0.0.1');
  await new Promise(done => server.once('listening', done));
  // A test file ends when nothing keeps it alive.
  server.unref();
  return server;
}

function addressOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function closed(server: Server): Promise<void> {
  const done = new Promise(resolve => server.close(resolve));
  server.closeAllConnections();
  await done;
}
