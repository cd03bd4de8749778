import { parseShallowJson } from '../../shared/json.ts';
import {
  itemsOf,
  type Operation,
  type OperationResult,
  type Request,
  ROUTES,
  type Schemas,
} from './operations.ts';
import {
  failureOf,
  type HttpConnections,
  type HttpReply,
  type HttpRequest,
  type HttpSettings,
  openHttp,
} from './platform.ts';
import { type BatchReply, checkedResult, isProblem, readBatch, TOO_LARGE } from './reply.ts';
import { BadReply, ConnectionFailed, ConnectTimeout, ReplyTimeout, ServerProblem } from './retry.ts';

/** Browsers manage the number and lifetime of connections themselves. */
export type RestTransportSettings = HttpSettings;

export const DEFAULT_HTTP: RestTransportSettings = {
  connections: 8,
  connectTimeoutMs: 5_000,
  replyTimeoutMs: 60_000,
  keepAliveMs: 30_000,
};

const EXCERPT_LENGTH = 200;
/** Operations with a REST reply that differs in form from frames and batches. */
const NOT_JSON: ReadonlySet<Operation> = new Set(['render', 'trajectory']);

/** One HTTP request. */
interface Message {
  /** Name of the operation, for errors. */
  readonly op: string;
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly path: string;
  /** JSON text. */
  readonly body?: string;
  /** Idempotency key. */
  readonly key?: string;
}

/** A request from another program. */
export interface ForwardedRequest {
  readonly method: 'POST';
  readonly path: string;
  readonly headers: { readonly [name: string]: string };
  readonly body: string;
}

export interface ForwardedReply {
  readonly status: number;
  readonly contentType: string | undefined;
  readonly body: string;
}

/** Statuses of proxies in front of a server that is away. */
const PROXY_STATUS: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** The REST transport of a server: each call is one attempt at one operation. */
export class RestTransport {
  readonly #server: string;
  readonly #prefix: string;
  readonly #http: HttpConnections;
  readonly #headers: { readonly [name: string]: string };
  readonly #settings: RestTransportSettings;

  /** @param token sent as bearer token, if the server needs one */
  constructor(url: URL, token: string | undefined, settings: RestTransportSettings) {
    this.#server = url.origin;
    this.#prefix = url.pathname.replace(/\/$/, '');
    this.#settings = settings;
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#http = openHttp(url.origin, settings);
  }

  /** @throws ServerProblem, ConnectionFailed, ReplyTimeout, BadReply */
  async exchange<O extends Operation>(
    request: Request<O>,
    signal?: AbortSignal,
  ): Promise<OperationResult<O>> {
    if (NOT_JSON.has(request.op)) {
      const [reply] = await this.exchangeBatch([request], itemsOf([request]), signal);
      if (reply instanceof Error) throw reply;
      return reply as OperationResult<O>;
    }
    const { method, path } = ROUTES[request.op];
    const rest: Record<string, unknown> = { ...request.input };
    const target = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(rest[name]);
      delete rest[name];
      return encodeURIComponent(value);
    });
    const asBody = method === 'POST';
    const message = {
      op: request.op,
      method,
      path: asBody ? target : target + queryOf(rest),
      body: asBody ? JSON.stringify(rest) : undefined,
      key: request.key,
    };
    return checkedResult(this.#server, request, await this.#send(message, signal));
  }

  /**
   * Many requests in one; each gets its result or its error, in order.
   * @param items the requests as the items of a batch
   * @throws like {@link exchange}
   */
  async exchangeBatch(
    requests: readonly Request[],
    items: string,
    signal?: AbortSignal,
  ): Promise<BatchReply[]> {
    const body = `{"items":[${items}]}`;
    const message = { op: 'batch', method: 'POST', path: '/v1/batch', body } as const;
    return readBatch(this.#server, requests, await this.#send(message, signal));
  }

  /**
   * Forwards a request unchanged; returns the reply for every status.
   * @throws ConnectionFailed, ReplyTimeout
   */
  async forward(
    { method, path, headers, body }: ForwardedRequest,
    signal: AbortSignal,
  ): Promise<ForwardedReply> {
    const sent = { method, path, headers: { ...headers, ...this.#headers }, body, signal };
    const reply = await this.#request(path, sent);
    return { status: reply.status, contentType: reply.header('content-type'), body: reply.text };
  }

  /** True if the server reports that it accepts requests. Throws only the signal's reason. */
  async ready(signal: AbortSignal): Promise<boolean> {
    try {
      const path = `${this.#prefix}/readyz`;
      const { status } = await this.#http.request({ method: 'GET', path, signal });
      return status < 400;
    } catch {
      signal.throwIfAborted();
      return false;
    }
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #send({ op, method, path, body, key }: Message, signal: AbortSignal | undefined): Promise<unknown> {
    const headers = {
      ...this.#headers,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...(key === undefined ? {} : { 'idempotency-key': key }),
    };
    const reply = await this.#request(op, { method, path, headers, body, signal });
    const { status, text } = reply;
    if (status === 204) return null;
    const value = parseShallowJson(text);
    if (PROXY_STATUS.has(status) && !isProblem(value)) {
      throw new ConnectionFailed(this.#server, `a proxy answered ${op} with status ${status}`);
    }
    if (value === undefined || (status >= 400 && !isProblem(value))) {
      throw new BadReply(this.#server, op, `status ${status}, ${text.slice(0, EXCERPT_LENGTH)}`);
    }
    if (status < 400) return value;
    const seconds = Number(reply.header('retry-after'));
    const retryAfterMs = seconds >= 0 ? seconds * 1000 : undefined;
    throw new ServerProblem(this.#server, op, value as Schemas['Problem'], retryAfterMs);
  }

  /** @throws the signal's reason, or an error that says why there is no reply */
  async #request(op: string, request: HttpRequest): Promise<HttpReply> {
    try {
      return await this.#http.request({ ...request, path: this.#prefix + request.path });
    } catch (error) {
      request.signal?.throwIfAborted();
      throw this.#failure(error, op);
    }
  }

  #failure(error: unknown, op: string): Error {
    const failure = failureOf(error);
    if (failure === 'connect_timeout') {
      return new ConnectTimeout(this.#server, this.#settings.connectTimeoutMs, error as Error);
    }
    if (failure === 'reply_timeout') {
      return new ReplyTimeout(this.#server, op, this.#settings.replyTimeoutMs);
    }
    if (failure === 'too_large') return new BadReply(this.#server, op, TOO_LARGE);
    return new ConnectionFailed(this.#server, `the request ${op} broke`, error);
  }
}

function queryOf(values: { readonly [name: string]: unknown }): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) query.set(name, String(value));
  return query.size === 0 ? '' : `?${query}`;
}
