import { randomUUID } from 'node:crypto';
import { Agent, request } from 'undici';
import { bytesOf, interimLimit } from '../../../shared/http/chunks.ts';
import { pause } from '../../../shared/http/retry.ts';
import { isObject, type JsonObject, parseJson } from '../../../shared/json.ts';
import { printable } from '../../../shared/text.ts';
import {
  Availability,
  DEFAULT_RETRY,
  FailedRequest,
  type RetryPolicy,
  retrying,
  type WaitEvents,
} from '../../client/retry.ts';
import { TinkerProtocolError } from '../../tinker/proto.ts';

export interface TinkerHttpOptions {
  /** Address of the server, without `/api/v1`. */
  readonly url: string;
  /** Sent as `X-API-Key`. Official clients send only keys that start with `tml-`. */
  readonly apiKey?: string;
  readonly retry?: Partial<RetryPolicy>;
  /** Milliseconds until a reply must begin, and from then until it must be whole; servers hold a poll for up to 45 s. */
  readonly timeoutMs?: number;
  /** Longest prompt with its response, which bounds replies to samples. */
  readonly maxSequenceLength: number;
  readonly waiting?: WaitEvents;
}

const RETRY: RetryPolicy = { ...DEFAULT_RETRY, baseMs: 500, maxDelayMs: 30_000, attempts: 6 };
const TIMEOUT_MS = 90_000;
/** Larger replies are rejected: training requests have 5 MB and their replies less, and a sample some bytes a token. */
const MAX_REPLY_BYTES = 2 ** 24;
const MAX_SAMPLE_BYTES = 2 ** 20;
const SAMPLE_BYTES_PER_TOKEN = 64;
const EXCERPT_LENGTH = 500;
/** Longest id or path of a server. */
const MAX_TEXT = 1024;
/** Connections for samples, each busy until its sample is done, and for everything else. */
const SAMPLING_CONNECTIONS = 256;
const TRAINING_CONNECTIONS = 16;
/** Least time between two polls of one result: servers should hold a poll, and some do not. */
const POLL_MS = 250;
/** A server that stays reachable but finishes nothing is given up after this many times the patience. */
const PENDING_PATIENCE = 6;

/** The server is full or restarting: requests wait for it. */
const AWAY_STATUS: ReadonlySet<number> = new Set([425, 429, 502, 503, 504, 529]);
/** The request may have been carried out; it is repeated under its number. */
const LOST_STATUS: ReadonlySet<number> = new Set([408, 409, 500]);
const CHECK_KEY = 'Check the key in the variable of policy.tinker.token_env';
/** Errors of undici that every attempt would meet, and their meaning. */
const HOPELESS: Readonly<Record<string, string>> = {
  UND_ERR_RES_EXCEEDED_MAX_SIZE: 'the reply is larger than any that was requested',
  UND_ERR_INVALID_ARG: `the request can't be sent. ${CHECK_KEY}`,
};
const HINTS: Readonly<Record<number, string>> = {
  401: CHECK_KEY,
  402: 'The account has no credit left: top it up, then resume the run, which continues from its last checkpoint',
  403: CHECK_KEY,
  404: 'The server does not know it, has retired it, or was started again: check policy.tinker.url and policy.init, or resume the run from its last checkpoint',
  410: 'The server has dropped it; whether it was applied is unknown: resume the run from its last checkpoint',
  429: 'The quota is used up, or the server is full',
};

/** A Tinker server rejects a request, or its reply is invalid. */
export class TinkerError extends FailedRequest {
  override readonly name = 'TinkerError';
  readonly failure: 'away' | 'lost' | 'final' = 'final';
  /** HTTP status; undefined where there was none. */
  declare readonly status?: number;

  constructor(
    message: string,
    details: Partial<Pick<TinkerError, 'failure' | 'status' | 'retryAfterMs'>> = {},
  ) {
    super(printable(message));
    Object.assign(this, details);
  }
}

/** A reply: a protobuf message where the server sends it, else JSON. */
export type TinkerReply = Uint8Array | JsonObject;

/** Purpose of a request: samples have separate connections, so training never waits for them. */
export type Purpose = 'training' | 'sampling';

type Method = 'GET' | 'POST' | 'DELETE';

/**
 * Requests to a Tinker server. Each is repeated with the same body until there is a reply, so it must carry its number.
 */
export class TinkerHttp {
  readonly url: string;
  readonly #apiKey: string;
  readonly #agents: Readonly<Record<Purpose, Agent>>;
  readonly #retry: RetryPolicy;
  readonly #timeoutMs: number;
  readonly #availability: Availability;
  /** Waits for a server that finishes no operation. */
  readonly #progress: Availability;
  #finishedAt = 0;
  readonly #closing = new AbortController();

  constructor(options: TinkerHttpOptions) {
    const { url, timeoutMs = TIMEOUT_MS, maxSequenceLength, waiting = {} } = options;
    this.url = url.replace(/(?<!\/)\/+$/, '');
    this.#apiKey = options.apiKey ?? 'tml-none';
    this.#retry = { ...RETRY, ...options.retry };
    this.#timeoutMs = timeoutMs;
    this.#availability = new Availability(this.url, waiting);
    this.#progress = new Availability(this.url, waiting);
    const agent = (connections: number, maxResponseSize: number) =>
      new Agent({ connections, headersTimeout: timeoutMs, bodyTimeout: timeoutMs, maxResponseSize });
    const sampleBytes = MAX_SAMPLE_BYTES + SAMPLE_BYTES_PER_TOKEN * maxSequenceLength;
    const training = agent(TRAINING_CONNECTIONS, MAX_REPLY_BYTES);
    this.#agents = { training, sampling: agent(SAMPLING_CONNECTIONS, sampleBytes) };
  }

  /** Ends all requests, and the session with them. */
  fail(error: Error): void {
    this.#closing.abort(error);
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error(`the client of ${this.url} was closed`));
    await Promise.all(Object.values(this.#agents).map(agent => agent.destroy()));
  }

  /** @param body JSON, or a protobuf message */
  async json(method: Method, route: string, body?: object, purpose?: Purpose): Promise<JsonObject> {
    return this.asJson(await this.#send(method, route, body, purpose), route);
  }

  /**
   * Submits an operation.
   * @returns reads its result, and throws a TinkerError where the operation failed or its result expired (status 410)
   */
  async submit(route: string, body: object, purpose?: Purpose): Promise<() => Promise<TinkerReply>> {
    const id = this.textOf(await this.json('POST', route, body, purpose), 'request_id', route);
    return () => this.#result(id, route, purpose);
  }

  async #result(request_id: string, what: string, purpose?: Purpose): Promise<TinkerReply> {
    const { patienceMs } = this.#retry;
    const began = performance.now();
    for (;;) {
      const asked = performance.now();
      const body = { request_id, allow_metadata_only: false };
      const reply = await this.#send('POST', 'retrieve_future', body, purpose);
      if (reply instanceof Uint8Array || reply.type !== 'try_again') {
        this.#finishedAt = performance.now();
        this.#progress.answered();
        if (reply instanceof Uint8Array || typeof reply.error !== 'string') return reply;
        const { category = 'unknown', error } = reply;
        throw new TinkerError(`${this.url}: ${what} failed (${category}): ${excerpt(error)}`);
      }
      const idleMs = performance.now() - Math.max(began, this.#finishedAt);
      if (idleMs > patienceMs) {
        const pending = new TinkerError(
          `${this.url}: ${what} is pending, and nothing was finished for ${(idleMs / 1000).toFixed(1)} s (policy.tinker.patience_s, ${PENDING_PATIENCE} times): whether it was applied is unknown; resume the run from its last checkpoint`,
        );
        this.#progress.failed(pending);
        if (idleMs > PENDING_PATIENCE * patienceMs) throw pending;
      }
      await pause(Math.max(0, POLL_MS - (performance.now() - asked)), this.#closing.signal);
    }
  }

  /** @throws TinkerError for a protobuf message */
  asJson(reply: TinkerReply, what: string): JsonObject {
    if (!(reply instanceof Uint8Array)) return reply;
    throw new TinkerError(`${this.url}: ${what}: a protobuf message came, not JSON`);
  }

  /** A decoded protobuf message. @throws TinkerError for JSON, and for a message of another kind */
  decoded<T>(reply: TinkerReply, decode: (bytes: Uint8Array) => T, what: string): T {
    try {
      if (reply instanceof Uint8Array) return decode(reply);
    } catch (error) {
      if (!(error instanceof TinkerProtocolError)) throw error;
      throw new TinkerError(`${this.url}: ${what}: ${error.message}`);
    }
    const found = excerpt(JSON.stringify(reply));
    throw new TinkerError(`${this.url}: ${what}: no protobuf message came, but ${found}`);
  }

  /** A text of a reply. @throws TinkerError naming the field */
  textOf(reply: TinkerReply, field: string, what: string): string {
    const value = this.asJson(reply, what)[field];
    if (typeof value === 'string' && value !== '' && value.length <= MAX_TEXT) return value;
    const found = excerpt(JSON.stringify(reply));
    throw new TinkerError(`${this.url}: ${what}: the reply has no ${field}: ${found}`);
  }

  #send(method: Method, route: string, body?: object, purpose: Purpose = 'training'): Promise<TinkerReply> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const isBinary = body instanceof Uint8Array;
    const headers = {
      'x-api-key': this.#apiKey,
      'x-idempotency-key': randomUUID(),
      accept: 'application/x-protobuf, application/json',
      ...(body && { 'content-type': isBinary ? 'application/x-protobuf' : 'application/json' }),
    };
    const content = isBinary ? body : body && JSON.stringify(body);
    const dispatcher = this.#agents[purpose];
    const where = `${this.url}: ${route}`;
    const attempt = async (): Promise<TinkerReply> => {
      try {
        const address = `${this.url}/api/v1/${route}`;
        const onInfo = interimLimit();
        const reply = await request(address, { method, dispatcher, headers, body: content, signal, onInfo });
        const bytes = await bytesOf(reply.body, { maxMs: this.#timeoutMs });
        return readReply(where, reply.statusCode, reply.headers, bytes);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof TinkerError) throw error;
        const { code = '', message } = error as NodeJS.ErrnoException;
        const failure = HOPELESS[code] ? 'final' : 'away';
        throw new TinkerError(`${where}: ${HOPELESS[code] ?? (message || code)}`, { failure });
      }
    };
    return retrying(this.url, attempt, this.#retry, this.#availability, signal);
  }
}

/** @throws TinkerError for a rejection, and for a body that does not match its headers */
function readReply(
  where: string,
  status: number,
  headers: Readonly<Record<string, string | string[] | undefined>>,
  bytes: Uint8Array,
): TinkerReply {
  if (status < 300 && String(headers['content-type']).includes('protobuf')) return bytes;
  const isPending = status === 408 && where.endsWith('retrieve_future');
  const text = Buffer.from(bytes).toString();
  const json = text === '' ? {} : parsed(text);
  if (status < 300 || isPending) {
    if (json) return isPending ? { ...json, type: 'try_again' } : json;
    const message = `${where}: the reply is not a JSON object: ${excerpt(text)}`;
    throw new TinkerError(message, { failure: 'lost', status });
  }
  const { detail = text } = json ?? {};
  const said = excerpt(typeof detail === 'string' ? detail : JSON.stringify(detail)) || 'no reason';
  const kind = AWAY_STATUS.has(status) ? 'away' : LOST_STATUS.has(status) ? 'lost' : 'final';
  const failure = headers['x-should-retry'] === 'false' ? 'final' : kind;
  const seconds = Number(headers['retry-after']);
  const retryAfterMs = failure === 'away' && seconds > 0 ? 1000 * Math.min(seconds, 3600) : undefined;
  const place = headers.location && excerpt(String(headers.location));
  const moved = place && `It redirects to ${place}: put that server into policy.tinker.url if you trust it`;
  const hint = status < 400 ? moved : HINTS[status];
  const message = `${where}: status ${status}: ${said}${hint ? `. ${hint}` : ''}`;
  throw new TinkerError(message, { status, failure, ...(retryAfterMs && { retryAfterMs }) });
}

function parsed(text: string): JsonObject | undefined {
  const json = parseJson(text);
  return isObject(json) ? json : undefined;
}

/** The beginning of a server's text. */
export const excerpt = (text: string): string =>
  text.length > EXCERPT_LENGTH ? `${text.slice(0, EXCERPT_LENGTH)} …` : text;
