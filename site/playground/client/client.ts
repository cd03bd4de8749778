import { shellWord } from '../../../shared/text.ts';
import {
  ask,
  failureOf,
  type RequestOptions,
  setToken,
  textOfReply,
  token,
} from '../../components/request.ts';
import type { BatchItem, BatchReply, EnvironmentServer, Operation, Schemas } from '../../player/wire.ts';

/** A request and its reply, as the page shows them. */
interface Exchange {
  readonly request: CurlRequest;
  readonly status: number;
  readonly milliseconds: number;
  readonly reply: string;
}

interface CallOptions extends Pick<RequestOptions, 'body' | 'keepalive'> {
  /** True for the page's own requests, which are not shown. */
  readonly quiet?: boolean;
}

/** Method and path of an operation; `{}` is the id of its session or environment. */
const ROUTES: { readonly [operation in Operation]: readonly [method: string, path: string] } = {
  get_environment: ['GET', 'v1/envs/{}'],
  describe_environment: ['POST', 'v1/envs/{}/describe'],
  create: ['POST', 'v1/sessions'],
  step: ['POST', 'v1/sessions/{}/step'],
  reset: ['POST', 'v1/sessions/{}/reset'],
  snapshot: ['POST', 'v1/sessions/{}/snapshot'],
  restore: ['POST', 'v1/sessions/{}/restore'],
  reference: ['POST', 'v1/sessions/{}/reference'],
  render: ['GET', 'v1/sessions/{}/render?mode=structured'],
  close: ['DELETE', 'v1/sessions/{}'],
};
/** Operations of the visitor's play, which are shown. */
const SHOWN: ReadonlySet<Operation> = new Set(['create', 'step', 'reset', 'restore']);
const UNAUTHORIZED = 401;
const DRAINING = 503;
/** Most exchanges kept for display. */
const MAX_EXCHANGES = 200;

/** Sends requests to the page's server; dispatches `exchange` and `unauthorized`. */
export class Client extends EventTarget implements EnvironmentServer {
  /** Requests of the visitor, oldest first. */
  exchanges: readonly Exchange[] = [];
  readonly connection = new Connection(async () => {
    const response = await fetch(this.#url('readyz'), { cache: 'no-store' });
    if (response.status !== DRAINING) return 'connected';
    const { code } = (await response.json()) as { code?: string };
    return code === 'draining' ? 'draining' : 'connected';
  });

  get token(): string {
    return token();
  }

  set token(value: string) {
    setToken(value);
  }

  /** @throws RequestFailed, ServerAway */
  async json<T>(method: string, path: string, options: CallOptions = {}): Promise<T> {
    const text = await this.#send(method, path, options);
    return text === '' ? (undefined as T) : JSON.parse(text);
  }

  /** @throws RequestFailed, ServerAway */
  async text(path: string): Promise<string> {
    return await this.#send('GET', path, {});
  }

  /**
   * Many operations in one request, not shown.
   * @throws RequestFailed, ServerAway
   */
  async batch(items: readonly BatchItem[]): Promise<readonly BatchReply[]> {
    const { results } = await this.json<Schemas['BatchResult']>('POST', 'v1/batch', {
      body: { items },
      quiet: true,
    });
    return results;
  }

  /**
   * One operation by its own route, so that the visitor sees the request.
   * @throws RequestFailed, ServerAway
   */
  async run<T>(operation: Operation, parameters: { readonly [name: string]: unknown }): Promise<T> {
    const [method, path] = ROUTES[operation];
    const { session_id: session, env_id: envId, ...rest } = parameters;
    const isShown = SHOWN.has(operation);
    const hasBody = method === 'POST' && (isShown || Object.keys(rest).length > 0);
    return this.json<T>(method, path.replace('{}', encodeURIComponent(String(session ?? envId))), {
      body: hasBody ? (operation === 'create' ? parameters : rest) : undefined,
      quiet: !isShown,
      keepalive: operation === 'close',
    });
  }

  /** A WebSocket to this server, with the token if there is one. */
  socket(): WebSocket {
    const url = new URL('v1/ws', document.baseURI);
    url.protocol = url.protocol.replace('http', 'ws');
    const bytes = new TextEncoder().encode(this.token);
    const token = btoa(String.fromCharCode(...bytes))
      .replaceAll('+', '-')
      .replaceAll('/', '_')
      .replaceAll('=', '');
    return new WebSocket(url, ['ragen.json', ...(token === '' ? [] : [`ragen.bearer.${token}`])]);
  }

  #url(path: string): string {
    return new URL(path, document.baseURI).href;
  }

  async #send(method: string, path: string, { body, quiet, keepalive }: CallOptions): Promise<string> {
    const url = this.#url(path);
    const authorized = this.token !== '';
    const started = performance.now();
    let response: Response;
    let reply: string;
    try {
      response = await ask(url, { method, body, keepalive, cache: 'no-store' });
      reply = await textOfReply(response);
    } catch (error) {
      this.connection.lost();
      throw error;
    }
    this.connection.answered();
    if (!quiet) {
      const exchange: Exchange = {
        request: { method, url, body: body === undefined ? undefined : JSON.stringify(body), authorized },
        status: response.status,
        milliseconds: performance.now() - started,
        reply,
      };
      this.exchanges = [...this.exchanges.slice(1 - MAX_EXCHANGES), exchange];
      this.dispatchEvent(new Event('exchange'));
    }
    if (response.status === UNAUTHORIZED) this.dispatchEvent(new Event('unauthorized'));
    const failure = failureOf(response, reply);
    if (failure) throw failure;
    return reply;
  }
}

/** A path of a session's operation. */
export const sessionPath = (sessionId: string, operation = ''): string =>
  `v1/sessions/${encodeURIComponent(sessionId)}${operation && `/${operation}`}`;

/** A path of an environment. */
export const environmentPath = (envId: string, operation = ''): string =>
  `v1/envs/${encodeURIComponent(envId)}${operation && `/${operation}`}`;

/** State of the server: it answers, it answers but shuts down, or it does not answer. */
export type ConnectionState = 'connected' | 'draining' | 'away';

const RETRY_MS = 2000;
/** Milliseconds between checks of the server by an idle page. */
const HEARTBEAT_MS = 10_000;

/** Tracks whether the server answers; dispatches `change` with every new state. */
export class Connection extends EventTarget {
  readonly #probe: () => Promise<ConnectionState>;
  #state: ConnectionState = 'connected';
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param probe asks the server; rejects when there is no answer */
  constructor(probe: () => Promise<ConnectionState>) {
    super();
    this.#probe = probe;
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.#ask();
    });
    this.#plan();
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** A request succeeded. */
  answered(): void {
    if (this.#state === 'away') this.#ask();
  }

  /** A request got no answer. */
  lost(): void {
    this.#become('away');
    this.#plan();
  }

  async #ask(): Promise<void> {
    let state: ConnectionState;
    try {
      state = await this.#probe();
    } catch {
      state = 'away';
    }
    this.#become(state);
    this.#plan();
  }

  #plan(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => (document.hidden ? this.#plan() : this.#ask()),
      this.#state === 'connected' ? HEARTBEAT_MS : RETRY_MS,
    );
  }

  #become(state: ConnectionState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.dispatchEvent(new Event('change'));
  }
}

/** A request as the page sends it. */
interface CurlRequest {
  readonly method: string;
  readonly url: string;
  readonly body?: string;
  /** True if it needs the token. */
  readonly authorized?: boolean;
  /** Headers besides those of token and body. */
  readonly headers?: { readonly [name: string]: string };
}

/** Languages for showing requests. */
export const LANGUAGES = ['curl', 'Python', 'TypeScript'] as const;
export type Language = (typeof LANGUAGES)[number];

const quoted = (text: string): string => JSON.stringify(text);

/** Lines that requests need before them. */
export function preamble(language: Language, origin: string, authorized: boolean): string {
  switch (language) {
    case 'curl':
      return '';
    case 'Python':
      return [
        ...(authorized ? ['import os'] : []),
        'import requests  # pip install requests',
        '',
        'api = requests.Session()',
        ...(authorized ? ['api.headers["authorization"] = f"Bearer {os.environ[\'RAGEN_TOKEN\']}"'] : []),
        `url = ${quoted(origin)}`,
      ].join('\n');
    case 'TypeScript':
      return [
        `const url = ${quoted(origin)};`,
        'async function ask(method: string, path: string, body?: unknown) {',
        '  const response = await fetch(url + path, {',
        '    method,',
        authorized
          ? "    headers: { 'content-type': 'application/json', authorization: 'Bearer ' + process.env.RAGEN_TOKEN },"
          : "    headers: { 'content-type': 'application/json' },",
        '    body: JSON.stringify(body),',
        '  });',
        '  const text = await response.text();',
        "  return text === '' ? undefined : JSON.parse(text);",
        '}',
      ].join('\n');
  }
}

/** One request, after the preamble of its language. */
export function codeLine(language: Language, request: CurlRequest, origin: string): string {
  const { method, url, body } = request;
  const path = url.startsWith(origin) ? url.slice(origin.length) : url;
  switch (language) {
    case 'curl':
      return curlLine(request);
    case 'Python': {
      const data = body === undefined ? '' : `, json=${pythonValue(JSON.parse(body))}`;
      return `api.${method.toLowerCase()}(url + ${quoted(path)}${data})`;
    }
    case 'TypeScript':
      return `await ask(${quoted(method)}, ${quoted(path)}${body === undefined ? '' : `, ${body}`});`;
  }
}

/** JSON as Python writes it. */
function pythonValue(value: unknown): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (Array.isArray(value)) return `[${value.map(pythonValue).join(', ')}]`;
  if (typeof value === 'object') {
    return `{${Object.entries(value as object)
      .map(([key, member]) => `${quoted(key)}: ${pythonValue(member)}`)
      .join(', ')}}`;
  }
  return JSON.stringify(value);
}

/** The equivalent command, one part a line; the token comes from the variable `RAGEN_TOKEN` and is never in the text. */
export function curlLine({ method, url, body, authorized, headers = {} }: CurlRequest): string {
  const first = ['curl', '-s'];
  if (method !== (body === undefined ? 'GET' : 'POST')) first.push('-X', method);
  const lines = [[...first, shellWord(url)].join(' ')];
  if (authorized) lines.push('-H "authorization: Bearer $RAGEN_TOKEN"');
  for (const header of Object.entries(headers)) lines.push(`-H ${shellWord(header.join(': '))}`);
  if (body !== undefined)
    lines.push(`-H ${shellWord('content-type: application/json')}`, `-d ${shellWord(body)}`);
  return lines.join(' \\\n  ');
}
