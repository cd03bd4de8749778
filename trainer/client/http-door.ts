import { errors, Pool } from 'undici';
import { BadReply, ConnectionFailed, ConnectTimeout, ReplyTimeout, ServerProblem } from './errors.ts';
import { type Operation, type OperationResult, type Request, ROUTES, type Schemas } from './operations.ts';

export interface HttpDoorSettings {
  /** Connections kept open. */
  readonly connections: number;
  readonly connectTimeoutMs: number;
  readonly replyTimeoutMs: number;
  readonly keepAliveMs: number;
}

export const DEFAULT_HTTP: HttpDoorSettings = {
  connections: 8,
  connectTimeoutMs: 5_000,
  replyTimeoutMs: 60_000,
  keepAliveMs: 30_000,
};

const EXCERPT_LENGTH = 200;

/** The REST door of a server: one attempt at one operation each call. */
export class HttpDoor {
  readonly #server: string;
  readonly #prefix: string;
  readonly #pool: Pool;
  readonly #headers: { readonly [name: string]: string };
  readonly #settings: HttpDoorSettings;

  /** @param token sent as bearer token, where the server wants one */
  constructor(url: URL, token: string | undefined, settings: HttpDoorSettings) {
    this.#server = url.origin;
    this.#prefix = url.pathname.replace(/\/$/, '');
    this.#settings = settings;
    this.#headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    this.#pool = new Pool(url.origin, {
      connections: settings.connections,
      keepAliveTimeout: settings.keepAliveMs,
      connect: { timeout: settings.connectTimeoutMs },
      headersTimeout: settings.replyTimeoutMs,
      bodyTimeout: settings.replyTimeoutMs,
    });
  }

  /** @throws ServerProblem, ConnectionFailed, ReplyTimeout, BadReply */
  async exchange<O extends Operation>(
    request: Request<O>,
    signal?: AbortSignal,
  ): Promise<OperationResult<O>> {
    const { method, path } = ROUTES[request.op];
    const rest: Record<string, unknown> = { ...request.input };
    const target = path.replace(/\{(\w+)\}/g, (_, name: string) => {
      const value = String(rest[name]);
      delete rest[name];
      return name === 'env_id'
        ? value.split('/').map(encodeURIComponent).join('/')
        : encodeURIComponent(value);
    });
    const hasBody = method === 'POST';
    const query = hasBody ? '' : queryOf(rest);
    let status: number;
    let text: string;
    let retryAfter: string | undefined;
    try {
      const response = await this.#pool.request({
        method,
        path: this.#prefix + target + query,
        headers: {
          ...this.#headers,
          ...(hasBody ? { 'content-type': 'application/json' } : {}),
          ...(request.key === undefined ? {} : { 'idempotency-key': request.key }),
        },
        body: hasBody ? JSON.stringify(rest) : undefined,
        signal,
      });
      status = response.statusCode;
      const header = response.headers['retry-after'];
      retryAfter = Array.isArray(header) ? header[0] : header;
      text = await response.body.text();
    } catch (error) {
      signal?.throwIfAborted();
      throw this.#failure(error, request.op);
    }
    if (status === 204) return null as OperationResult<O>;
    const value = parse(text);
    if (value === undefined) throw new BadReply(this.#server, request.op, text.slice(0, EXCERPT_LENGTH));
    if (status < 400) return value as OperationResult<O>;
    if (!isProblem(value)) throw new BadReply(this.#server, request.op, text.slice(0, EXCERPT_LENGTH));
    const seconds = Number(retryAfter);
    throw new ServerProblem(
      this.#server,
      request.op,
      value,
      retryAfter !== undefined && seconds >= 0 ? seconds * 1000 : undefined,
    );
  }

  close(): Promise<void> {
    return this.#pool.destroy();
  }

  #failure(error: unknown, op: Operation): Error {
    if (error instanceof errors.ConnectTimeoutError) {
      return new ConnectTimeout(this.#server, this.#settings.connectTimeoutMs, error);
    }
    if (error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError) {
      return new ReplyTimeout(this.#server, op, this.#settings.replyTimeoutMs);
    }
    return new ConnectionFailed(this.#server, `the request ${op} broke`, error);
  }
}

function queryOf(values: { readonly [name: string]: unknown }): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) if (value !== undefined) query.set(name, String(value));
  return query.size === 0 ? '' : `?${query}`;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** A value that has what every problem document has. */
export function isProblem(value: unknown): value is Schemas['Problem'] {
  return (
    typeof value === 'object' && value !== null && 'code' in value && 'status' in value && 'detail' in value
  );
}
