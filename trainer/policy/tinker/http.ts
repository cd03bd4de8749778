import { randomUUID } from 'node:crypto';
import { Agent, request } from 'undici';
import type { JsonObject } from '../../../shared/json.ts';
import { printable } from '../../../shared/printable.ts';
import { Availability, type WaitEvents } from '../../client/availability.ts';
import { FailedRequest } from '../../client/errors.ts';
import { pause, type RetryPolicy, retrying } from '../../client/retry.ts';

export interface TinkerHttpOptions {
  /** Address of the server, without `/api/v1`. */
  readonly url: string;
  /** Sent as `X-API-Key`. Official clients send only keys that start with `tml-`. */
  readonly apiKey?: string;
  readonly retry?: Partial<RetryPolicy>;
  /** Milliseconds until a reply must be whole; servers hold a poll for up to 45 s. */
  readonly timeoutMs?: number;
  readonly waiting?: WaitEvents;
}

const RETRY: RetryPolicy = {
  baseMs: 500,
  maxDelayMs: 30_000,
  patienceMs: 600_000,
  attempts: 6,
  probeMs: 1_000,
};
const TIMEOUT_MS = 90_000;
/** Larger replies are refused. */
const MAX_REPLY_BYTES = 256 * 2 ** 20;
const EXCERPT_LENGTH = 500;
/** Connections of samples, each of which holds one until it is done, and of all else. */
const SAMPLING_CONNECTIONS = 256;
const TRAINING_CONNECTIONS = 16;
/** Least time between two polls of one result: servers should hold a poll, and some do not. */
const POLL_MS = 250;

/** The server is full or on its way back: it is waited for. */
const AWAY_STATUS: ReadonlySet<number> = new Set([425, 429, 502, 503, 504, 529]);
/** The request may have been carried out, and is repeated under its number. */
const LOST_STATUS: ReadonlySet<number> = new Set([408, 409, 500]);

/** A Tinker server refuses a request, or replies with something that no server may. */
export class TinkerError extends FailedRequest {
  override readonly name = 'TinkerError';
  readonly failure: 'away' | 'lost' | 'final';
  /** HTTP status; undefined where there was none. */
  readonly status: number | undefined;
  override readonly retryAfterMs: number | undefined;

  constructor(
    message: string,
    details: Partial<Pick<TinkerError, 'failure' | 'status' | 'retryAfterMs'>> = {},
  ) {
    super(printable(message));
    this.failure = details.failure ?? 'final';
    this.status = details.status;
    this.retryAfterMs = details.retryAfterMs;
  }
}

/** A reply: protobuf where the server sends it, else JSON. */
export type TinkerReply = { readonly bytes: Uint8Array } | { readonly json: JsonObject };

/** Purpose of a request: samples have separate connections, so that training never waits for them. */
export type Purpose = 'training' | 'sampling';

/** Requests to a Tinker server. Each is repeated with the same body until it has a reply, so that it must carry its number. */
export class TinkerHttp {
  readonly url: string;
  readonly #apiKey: string;
  readonly #agents: Readonly<Record<Purpose, Agent>>;
  readonly #retry: RetryPolicy;
  readonly #availability: Availability;
  readonly #closing = new AbortController();

  constructor({ url, apiKey, retry, timeoutMs = TIMEOUT_MS, waiting = {} }: TinkerHttpOptions) {
    this.url = url.replace(/(?<!\/)\/+$/, '');
    this.#apiKey = apiKey ?? 'tml-none';
    this.#retry = { ...RETRY, ...retry };
    this.#availability = new Availability(this.url, waiting);
    const agent = (connections: number) =>
      new Agent({
        connections,
        headersTimeout: timeoutMs,
        bodyTimeout: timeoutMs,
        maxResponseSize: MAX_REPLY_BYTES,
      });
    this.#agents = { training: agent(TRAINING_CONNECTIONS), sampling: agent(SAMPLING_CONNECTIONS) };
  }

  /** Ends all requests, and the session with them. */
  fail(error: Error): void {
    this.#closing.abort(error);
  }

  get(route: string): Promise<JsonObject> {
    return this.#json('GET', route);
  }

  delete(route: string): Promise<JsonObject> {
    return this.#json('DELETE', route);
  }

  /** @param body JSON, or a protobuf message */
  async post(route: string, body: object | Uint8Array, purpose: Purpose = 'training'): Promise<JsonObject> {
    return jsonOf(await this.#send('POST', route, body, purpose), `${this.url}: ${route}`);
  }

  /**
   * The result of an operation: asks until there is one.
   * @throws TinkerError where the operation failed, or its result expired (status 410)
   */
  async result(requestId: string, what: string, purpose: Purpose = 'training'): Promise<TinkerReply> {
    for (;;) {
      const asked = performance.now();
      const body = { request_id: requestId, allow_metadata_only: false };
      const reply = await this.#send('POST', 'retrieve_future', body, purpose);
      if ('bytes' in reply) return reply;
      const { type, error, category } = reply.json;
      if (typeof error === 'string') {
        throw new TinkerError(`${this.url}: ${what} failed (${category ?? 'unknown'}): ${excerpt(error)}`);
      }
      if (type !== 'try_again') return reply;
      await pause(Math.max(0, POLL_MS - (performance.now() - asked)), this.#closing.signal);
    }
  }

  async close(): Promise<void> {
    this.#closing.abort(new Error(`the client of ${this.url} was closed`));
    await Promise.all(Object.values(this.#agents).map(agent => agent.destroy()));
  }

  async #json(method: 'GET' | 'DELETE', route: string): Promise<JsonObject> {
    return jsonOf(await this.#send(method, route, undefined, 'training'), `${this.url}: ${route}`);
  }

  #send(
    method: 'GET' | 'POST' | 'DELETE',
    route: string,
    body: object | Uint8Array | undefined,
    purpose: Purpose,
  ): Promise<TinkerReply> {
    const { signal } = this.#closing;
    signal.throwIfAborted();
    const binary = body instanceof Uint8Array;
    const content = body === undefined || binary ? body : JSON.stringify(body);
    const headers = {
      'x-api-key': this.#apiKey,
      'x-idempotency-key': randomUUID(),
      accept: 'application/x-protobuf, application/json',
      ...(body === undefined
        ? {}
        : { 'content-type': binary ? 'application/x-protobuf' : 'application/json' }),
    };
    const attempt = async (): Promise<TinkerReply> => {
      try {
        const dispatcher = this.#agents[purpose];
        const address = `${this.url}/api/v1/${route}`;
        const reply = await request(address, { method, dispatcher, headers, body: content, signal });
        const bytes = new Uint8Array(await reply.body.arrayBuffer());
        return this.#read(route, reply.statusCode, reply.headers, bytes);
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof TinkerError) throw error;
        throw new TinkerError(`${this.url}: ${route}: ${(error as Error).message}`, { failure: 'away' });
      }
    };
    return retrying(this.url, attempt, this.#retry, this.#availability, signal);
  }

  /** @throws TinkerError for a refusal, and for a body that is not what the headers say */
  #read(
    route: string,
    status: number,
    headers: Readonly<Record<string, string | string[] | undefined>>,
    bytes: Uint8Array,
  ): TinkerReply {
    const isPending = route === 'retrieve_future' && status === 408;
    if (status < 300 && String(headers['content-type']).includes('protobuf')) return { bytes };
    const text = Buffer.from(bytes).toString();
    if (status < 300 || isPending) {
      if (text === '') return { json: isPending ? { type: 'try_again' } : {} };
      const json = parsed(text);
      if (json) return { json: isPending ? { ...json, type: 'try_again' } : json };
      throw new TinkerError(`${this.url}: ${route}: the reply is no JSON object: ${excerpt(text)}`, {
        failure: 'lost',
        status,
      });
    }
    const detail = parsed(text)?.detail;
    const said = excerpt(typeof detail === 'string' ? detail : detail ? JSON.stringify(detail) : text);
    const seconds = Number(headers['retry-after']);
    const isFinal = headers['x-should-retry'] === 'false';
    throw new TinkerError(`${this.url}: ${route}: status ${status}: ${said || 'no reason'}${hint(status)}`, {
      status,
      failure: isFinal
        ? 'final'
        : AWAY_STATUS.has(status)
          ? 'away'
          : LOST_STATUS.has(status)
            ? 'lost'
            : 'final',
      ...(seconds > 0 ? { retryAfterMs: 1000 * Math.min(seconds, 3600) } : {}),
    });
  }
}

function hint(status: number): string {
  switch (status) {
    case 401:
    case 403:
      return '. Check the key in the variable of policy.tinker.token_env';
    case 402:
      return '. The account has no credit left: top it up, then resume the run, which continues from its last checkpoint';
    case 404:
      return '. The server does not know it, or has retired it: check policy.tinker.url and policy.init';
    case 410:
      return '. The server has dropped it; whether it was applied is unknown: resume the run from its last checkpoint';
    case 429:
      return '. The quota is used up, or the server is full';
    default:
      return '';
  }
}

/** A result of JSON. @throws TinkerError for a protobuf message */
export function jsonOf(reply: TinkerReply, what: string): JsonObject {
  if ('json' in reply) return reply.json;
  throw new TinkerError(`${what}: a protobuf message came, not JSON`);
}

/** A result of protobuf. @throws TinkerError for JSON */
export function bytesOf(reply: TinkerReply, what: string): Uint8Array {
  if ('bytes' in reply) return reply.bytes;
  throw new TinkerError(`${what}: no protobuf message came, but ${excerpt(JSON.stringify(reply.json))}`);
}

/** A text of a reply. @throws TinkerError naming the field */
export function textOf(reply: JsonObject, field: string, what: string): string {
  const value = reply[field];
  if (typeof value === 'string' && value !== '') return value;
  throw new TinkerError(`${what}: the reply has no ${field}: ${excerpt(JSON.stringify(reply))}`);
}

function parsed(text: string): JsonObject | undefined {
  try {
    const json = JSON.parse(text) as unknown;
    return typeof json === 'object' && json !== null && !Array.isArray(json)
      ? (json as JsonObject)
      : undefined;
  } catch {
    return undefined;
  }
}

const excerpt = (text: string): string =>
  text.length > EXCERPT_LENGTH ? `${text.slice(0, EXCERPT_LENGTH)} …` : text;
