import type { CurlRequest } from './code-lines.ts';
import { Connection } from './connection.ts';
import type { ProblemReply, Schemas } from './wire.ts';

/** A request and its reply, as the page shows them. */
export interface Exchange {
  readonly request: CurlRequest;
  readonly status: number;
  readonly milliseconds: number;
  readonly reply: string;
}

/** The server refused a request, or failed. */
export class RequestFailed extends Error {
  readonly problem: ProblemReply;

  constructor(problem: ProblemReply) {
    super(problem.detail);
    this.name = 'RequestFailed';
    this.problem = problem;
  }
}

/** The server did not answer. */
class ServerAway extends Error {
  constructor(cause: unknown) {
    super('The server does not answer.', { cause });
    this.name = 'ServerAway';
  }
}

interface RequestOptions {
  readonly body?: unknown;
  /** The page asks on its own account: not shown as an exchange. */
  readonly quiet?: boolean;
  /** The page may be gone before the reply. */
  readonly keepalive?: boolean;
}

type BatchItem = { readonly op: Schemas['BatchItem']['op']; readonly [key: string]: unknown };
type BatchReply = Schemas['BatchReply'];

/** Key under which browsers keep the token, as long as the tab is open. */
const TOKEN_KEY = 'ragen-token';
const UNAUTHORIZED = 401;
const DRAINING = 503;
/** Characters shown of a reply that is no problem document. */
const MAX_REPLY_LENGTH = 500;

/** Exchanges that are kept to be shown. */
const MAX_EXCHANGES = 200;

/** Talks to the server that the page came from; dispatches `exchange` and `unauthorized`. */
export class Client extends EventTarget {
  /** Requests of the visitor, the last one last. */
  exchanges: readonly Exchange[] = [];
  readonly connection = new Connection(async () => {
    const response = await fetch(this.#url('readyz'), { cache: 'no-store' });
    if (response.status !== DRAINING) return 'connected';
    const { code } = (await response.json()) as { code?: string };
    return code === 'draining' ? 'draining' : 'connected';
  });

  get token(): string {
    return sessionStorage.getItem(TOKEN_KEY) ?? '';
  }

  set token(token: string) {
    if (token === '') sessionStorage.removeItem(TOKEN_KEY);
    else sessionStorage.setItem(TOKEN_KEY, token);
  }

  /** @throws RequestFailed, ServerAway */
  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const text = await this.#send(method, path, options);
    return text === '' ? (undefined as T) : JSON.parse(text);
  }

  /** @throws RequestFailed, ServerAway */
  async text(path: string, options: RequestOptions = {}): Promise<string> {
    return await this.#send('GET', path, options);
  }

  /**
   * Many operations in one request, unseen.
   * @throws RequestFailed, ServerAway
   */
  async batch(items: readonly BatchItem[]): Promise<BatchReply[]> {
    const { results } = await this.json<Schemas['BatchResult']>('POST', 'v1/batch', {
      body: { items },
      quiet: true,
    });
    return results;
  }

  /** A WebSocket of this server, with the token where there is one. */
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

  async #send(method: string, path: string, { body, quiet, keepalive }: RequestOptions): Promise<string> {
    const url = this.#url(path);
    const { token } = this;
    const text = body === undefined ? undefined : JSON.stringify(body);
    const started = performance.now();
    let response: Response;
    let reply: string;
    try {
      response = await fetch(url, {
        method,
        body: text,
        keepalive,
        cache: 'no-store',
        headers: {
          ...(text !== undefined && { 'content-type': 'application/json' }),
          ...(token !== '' && { authorization: `Bearer ${token}` }),
        },
      });
      reply = await response.text();
    } catch (cause) {
      this.connection.lost();
      throw new ServerAway(cause);
    }
    this.connection.answered();
    if (!quiet) {
      const exchange: Exchange = {
        request: { method, url, body: text, authorized: token !== '' },
        status: response.status,
        milliseconds: performance.now() - started,
        reply,
      };
      this.exchanges = [...this.exchanges.slice(1 - MAX_EXCHANGES), exchange];
      this.dispatchEvent(new Event('exchange'));
    }
    if (!response.ok) {
      if (response.status === UNAUTHORIZED) this.dispatchEvent(new Event('unauthorized'));
      throw new RequestFailed(problemOf(response, reply));
    }
    return reply;
  }
}

function problemOf(response: Response, reply: string): ProblemReply {
  if (response.headers.get('content-type')?.startsWith('application/problem+json')) return JSON.parse(reply);
  return {
    title: response.statusText || 'The request failed',
    status: response.status,
    detail: reply.slice(0, MAX_REPLY_LENGTH) || 'The reply says nothing more.',
  };
}

/** A path of a session's operation. */
export const sessionPath = (sessionId: string, operation = ''): string =>
  `v1/sessions/${encodeURIComponent(sessionId)}${operation && `/${operation}`}`;

/** A path of an environment. */
export const environmentPath = (envId: string, operation = ''): string =>
  `v1/envs/${encodeURIComponent(envId)}${operation && `/${operation}`}`;
