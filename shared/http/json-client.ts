import { Agent, type Dispatcher, errors, request } from 'undici';
import { interimLimit, LateBody, textOf } from './chunks.ts';
import { orAborted, retryAfterMs } from './retry.ts';

export interface JsonClientOptions {
  /** Prefix of every path. */
  readonly url: string;
  /** Bearer token. */
  readonly token?: string;
  /** Milliseconds until a reply must begin, and from then until its text must be whole. */
  readonly timeoutMs: number;
  /** Requests in flight at once; further ones wait. */
  readonly connections?: number;
  /** Largest accepted reply in bytes. */
  readonly maxBytes?: number;
}

export interface JsonRequest {
  readonly method?: 'GET' | 'POST';
  /** JSON text, or a value to be written as JSON. */
  readonly body?: string | object;
  readonly signal?: AbortSignal;
}

/** A request that got no usable reply. */
export class HttpError extends Error {
  override readonly name = 'HttpError';
  /** Status of the refusal; undefined when there was no reply. */
  readonly status: number | undefined;
  /** Body of the refusal. */
  readonly text: string = '';
  /** Wait in milliseconds that the server asked for. */
  readonly retryAfterMs: number = 0;
  /** True if the reply was larger than allowed. */
  readonly tooLarge: boolean = false;

  constructor(message: string, details: Partial<Omit<HttpError, 'name' | 'message' | 'passing'>>) {
    super(message);
    Object.assign(this, details);
  }

  /** True if the same request may succeed later. */
  get passing(): boolean {
    return this.status === undefined ? !this.tooLarge : PASSING_STATUS.has(this.status);
  }
}

const PASSING_STATUS: ReadonlySet<number> = new Set([408, 409, 425, 429, 500, 502, 503, 504]);
const MAX_REPLY_BYTES = 64 * 2 ** 20;
/** Longest wait for a connection: a host that is gone says nothing, and replies may take minutes. */
const CONNECT_MS = 10_000;
const EXCERPT_LENGTH = 300;
const LATE = [errors.HeadersTimeoutError, errors.BodyTimeoutError, LateBody];

/** Sends JSON requests to one server, each once; `retry` repeats them. */
export class JsonClient {
  /** Without trailing slashes. */
  readonly url: string;
  readonly #options: JsonClientOptions;
  readonly #agent: Agent;

  constructor(options: JsonClientOptions) {
    this.url = options.url.replace(/(?<!\/)\/+$/, '');
    this.#options = options;
    const { timeoutMs, connections, maxBytes = MAX_REPLY_BYTES } = options;
    this.#agent = new Agent({
      connect: { timeout: Math.min(CONNECT_MS, timeoutMs) },
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxResponseSize: maxBytes,
      ...(connections === undefined ? {} : { connections }),
    });
  }

  /**
   * Text of a reply.
   * @throws HttpError; the signal's reason when aborted
   */
  async send(path: string, options: JsonRequest = {}): Promise<string> {
    const { body } = await this.open(path, options);
    return this.#failing(path, options.signal, () => this.#textOf(body));
  }

  /**
   * A successful reply with its body unread.
   * @throws HttpError; the signal's reason when aborted
   */
  async open(path: string, options: JsonRequest = {}): Promise<Dispatcher.ResponseData> {
    const { method = 'GET', body, signal } = options;
    const { token } = this.#options;
    const reply = await this.#failing(path, signal, () => {
      const replying = request(`${this.url}${path}`, {
        method,
        dispatcher: this.#agent,
        onInfo: interimLimit(),
        headers: {
          ...(body === undefined ? {} : { 'content-type': 'application/json' }),
          ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
        },
        ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
        ...(signal === undefined ? {} : { signal }),
      });
      // undici looks at the signal of a request when it is connected.
      return signal === undefined ? replying : orAborted(replying, signal);
    });
    const { statusCode: status } = reply;
    if (status < 300) return reply;
    const text = await this.#failing(path, signal, () => this.#textOf(reply.body));
    const details = { status, text, retryAfterMs: retryAfterMs(reply.headers['retry-after']) };
    throw new HttpError(`${this.#place(path)}: status ${status}: ${text.slice(0, EXCERPT_LENGTH)}`, details);
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  #textOf(body: Dispatcher.ResponseData['body']): Promise<string> {
    return textOf(body, { maxMs: this.#options.timeoutMs });
  }

  #place(path: string): string {
    return this.url + path.split('?')[0];
  }

  async #failing<T>(path: string, signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (cause) {
      signal?.throwIfAborted();
      const { message, code } = cause as NodeJS.ErrnoException;
      const tooLarge = cause instanceof errors.ResponseExceededMaxSizeError;
      const late = LATE.some(kind => cause instanceof kind);
      const { timeoutMs, maxBytes = MAX_REPLY_BYTES } = this.#options;
      const why = tooLarge
        ? `the reply is larger than ${maxBytes} bytes`
        : late
          ? `no answer within ${timeoutMs / 1000} s`
          : `no connection (${message || code})`;
      throw new HttpError(`${this.#place(path)}: ${why}`, { tooLarge, cause });
    }
  }
}
