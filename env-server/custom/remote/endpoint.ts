import { textOf } from '../../../shared/http/chunks.ts';
import { type Backoff, backoffMs, retry } from '../../../shared/http/retry.ts';
import { isObject, type Json, type JsonObject, parseJson } from '../../../shared/json.ts';
import type { SlotGroup } from '../../../shared/scheduling/queues.ts';
import { Problem } from '../../problems.ts';
import { InvalidAnswer } from '../answer.ts';
import { CircuitBreaker } from '../breaker.ts';
import { invalidDefinition } from '../definitions/fault.ts';
import { JsonOutOfBounds, readAnswer } from '../json-limits.ts';
import { ForbiddenAddress, type OwnedNetwork, type RemoteNetwork, UnresolvedHost } from './network.ts';
import { type Headers, type HeaderValue, NOT_SHOWN, UnknownSecret } from './secrets.ts';

const ATTEMPTS = 3;
const BACKOFF: Backoff = { firstMs: 50, factor: 5 };
const DEFAULT_TIMEOUT_MS = 10_000;
export const DEFAULT_CONNECTIONS = 128;
/** Requests of one environment that may wait for a connection, and for how long each. */
const MAX_WAITING = 10_000;
const MAX_WAIT_MS = 30_000;
const MS_PER_S = 1000;
const MAX_DETAIL_LENGTH = 300;

/** Nothing was sent, so a retry cannot act twice. */
const NOT_CONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'EADDRNOTAVAIL',
  'UND_ERR_CONNECT_TIMEOUT',
]);
/** The connection broke: only repeatable requests are retried. */
const DISCONNECTED = new Set(['ECONNRESET', 'EPIPE', 'UND_ERR_SOCKET']);
const CERTIFICATE = /CERT|SIGNATURE/;
const TLS = /^(?:ERR_SSL|EPROTO)/;

const HEADER_NAME = /^[a-z0-9!#$%&'*+.^_`|~-]+$/;
const UNSENDABLE = /[^\t\x20-\x7e]/;

/** Headers that belong to the connection. */
const OWN_HEADERS = new Set([
  'host',
  'connection',
  'content-length',
  'content-type',
  'transfer-encoding',
  'keep-alive',
  'upgrade',
  'expect',
  'te',
  'trailer',
]);

/** Address, headers and limits by which a definition reaches its service. */
export interface EndpointAccess {
  readonly url: string;
  readonly headers?: Headers;
  readonly timeout_ms?: number;
  readonly connections?: number;
}

export interface EndpointReply {
  readonly status: number;
  readonly body: Json;
}

/**
 * The service of one environment: bounded connections, timeouts, a few retries of requests that had no effect, a
 * circuit breaker. Its problems are `remote_unavailable` where nothing was done and `remote_failed` where that is
 * unknown.
 */
export class Endpoint {
  readonly name: string;
  readonly timeoutMs: number;
  readonly network: RemoteNetwork;
  /** Slots for open WebSockets to the service. */
  readonly sockets: SlotGroup;
  readonly #owner: string;
  readonly #base: URL;
  readonly #breaker: CircuitBreaker;
  /** Most connections; absent where the definition names none. */
  readonly #connections: number | undefined;
  /** Requests in progress. */
  #open = 0;
  readonly #slots: SlotGroup;
  readonly #given: Headers;
  #headers: { readonly [name: string]: string } | undefined;

  /**
   * @param name of the environment, for messages
   * @throws Problem `invalid_request` for an unusable address or unusable headers
   */
  constructor(
    name: string,
    access: EndpointAccess,
    { network, owner }: OwnedNetwork,
    now = performance.now.bind(performance),
  ) {
    this.name = name;
    this.network = network;
    this.sockets = network.sockets(owner);
    this.#owner = owner;
    this.timeoutMs = access.timeout_ms ?? DEFAULT_TIMEOUT_MS;
    this.#connections = access.connections;
    this.#slots = network.slots(owner, this.#connections ?? DEFAULT_CONNECTIONS);
    this.#base = baseOf(access.url);
    this.#given = headersOf(access.headers);
    this.#breaker = new CircuitBreaker(now);
  }

  /** The address of a route below the service's. */
  url(route: string): URL {
    return new URL(route, this.#base);
  }

  /**
   * Headers that the owner adds to every request.
   * @throws Problem `environment_fault` where the value of a header is no longer available
   */
  get headers(): { readonly [name: string]: string } {
    try {
      this.#headers ??= this.#openHeaders();
      return this.#headers;
    } catch (error) {
      if (!(error instanceof UnknownSecret)) throw error;
      throw new Problem('environment_fault', `${this.name} cannot be played: ${error.message}`);
    }
  }

  #openHeaders(): { readonly [name: string]: string } {
    const opened = Object.entries(this.#given).map(([name, value]) => {
      const text = this.network.secrets.open(this.name, name, value, this.#base.hostname);
      if (text === NOT_SHOWN) {
        throw new UnknownSecret(`"${name}" needs its value again: definitions are shown without it`);
      }
      if (UNSENDABLE.test(text)) throw new UnknownSecret(`the value of "${name}" cannot be sent as a header`);
      return [name, text];
    });
    return Object.fromEntries(opened);
  }

  /**
   * @throws Problem `invalid_request` where the guard forbids the address, it does not resolve, or a header has no
   * value
   */
  async checkAddress(): Promise<void> {
    try {
      this.#headers = this.#openHeaders();
    } catch (error) {
      if (error instanceof UnknownSecret) throw invalidDefinition('/headers', error.message);
      throw error;
    }
    try {
      await this.network.guard.check(this.#base, this.#owner);
    } catch (error) {
      throw invalidDefinition('/url', (error as Error).message);
    }
  }

  /**
   * Sends JSON and reads JSON.
   * @param repeatable true if the service acts once even when the request arrives twice
   * @returns replies with a status up to 499
   * @throws Problem `remote_unavailable`, `remote_failed`
   */
  ask(
    method: 'GET' | 'POST' | 'DELETE',
    route: string,
    body?: object,
    {
      repeatable = method === 'GET',
      headers = {},
    }: { repeatable?: boolean; headers?: { [name: string]: string } } = {},
  ): Promise<EndpointReply> {
    return this.#exchange(method, route, body, { repeatable, headers }, (status, text, what) => ({
      status,
      body: text === '' ? null : this.readJson(text, what),
    }));
  }

  /**
   * Posts JSON and returns the reply unparsed, for other reply formats.
   * @param accept the requested content type
   * @throws Problem `remote_unavailable`, `remote_failed`, also for a reply with an error status
   */
  askText(
    route: string,
    body: object,
    { accept, headers = {} }: { accept: string; headers?: { [name: string]: string } },
  ): Promise<string> {
    const options = { repeatable: false, headers: { ...headers, accept } };
    return this.#exchange('POST', route, body, options, (status, text, what) => {
      if (status >= 400) throw new BadReply(`answered ${what} with ${status}${afterColon(parseJson(text))}`);
      return text;
    });
  }

  /** @throws Problem, also what `read` throws */
  #exchange<T>(
    method: 'GET' | 'POST' | 'DELETE',
    route: string,
    body: object | undefined,
    { repeatable, headers }: { repeatable: boolean; headers: { [name: string]: string } },
    read: (status: number, text: string, what: string) => T,
  ): Promise<T> {
    return this.attempt(repeatable, async signal => {
      const url = this.url(route);
      this.network.guard.checkUrl(url);
      const request = {
        method,
        headers: {
          ...this.headers,
          accept: 'application/json',
          ...headers,
          ...(body && { 'content-type': 'application/json' }),
        },
        ...(body && { body: JSON.stringify(body) }),
        signal,
        headersTimeout: this.timeoutMs,
        bodyTimeout: this.timeoutMs,
      };
      const reply = await this.network.send(url, request, this.#connections);
      const text = await textOf(reply.body);
      const status = reply.statusCode;
      const what = `${method} ${url.pathname}`;
      if (status >= 500) throw new BadReply(`answered ${what} with ${status}${afterColon(parseJson(text))}`);
      if (status >= 300 && status < 400) {
        throw new BadReply(`answered ${what} with a redirect, which is not followed`);
      }
      return read(status, text, what);
    });
  }

  /**
   * Like {@link ask}, for replies that must be a success with an object.
   * @throws Problem `remote_unavailable`, `remote_failed`
   */
  async askObject(...request: Parameters<Endpoint['ask']>): Promise<JsonObject> {
    const { status, body } = await this.ask(...request);
    const [method, route] = request;
    if (status >= 400) {
      throw this.failed(`answered ${method} ${route} with ${status}${afterColon(body)}`);
    }
    if (!isObject(body)) throw this.failed(`must answer ${method} ${route} with a JSON object`);
    return body;
  }

  /**
   * Runs a request when a connection is free, with its timeout, retries and breaker. The timeout starts with the
   * connection.
   * @throws Problem `remote_unavailable`, `remote_failed`
   */
  async attempt<T>(repeatable: boolean, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    await this.#takeSlot();
    this.#open++;
    try {
      return await this.#attempt(repeatable, work);
    } finally {
      this.#open--;
      this.#slots.release();
    }
  }

  async #takeSlot(): Promise<void> {
    if (this.#slots.waiting >= MAX_WAITING) {
      throw this.unavailable(`has ${MAX_WAITING} requests waiting for a connection, the most it may have`);
    }
    if (await this.#slots.take(MAX_WAIT_MS)) return;
    throw this.unavailable(
      `had no connection free within ${MAX_WAIT_MS / MS_PER_S} s; its definition allows ${this.#connections ?? DEFAULT_CONNECTIONS} (connections)`,
    );
  }

  async #attempt<T>(repeatable: boolean, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const pause = this.#breaker.enter();
    if (pause > 0) {
      throw this.unavailable(`failed several times in a row and is left alone for a while`, pause / MS_PER_S);
    }
    const signal = AbortSignal.timeout(this.timeoutMs);
    const pauseAfter = (error: unknown, attempt: number): number => {
      const again = NOT_CONNECTED.has(codeOf(error)) || (repeatable && DISCONNECTED.has(codeOf(error)));
      if (!again || signal.aborted || attempt === ATTEMPTS) {
        this.#breaker.failed();
        throw this.#problemOf(error, signal);
      }
      this.network.guard.unpin(this.#base);
      return backoffMs(BACKOFF, attempt);
    };
    const result = await retry(async () => {
      await this.network.guard.check(this.#base, this.#owner, signal);
      return work(signal);
    }, pauseAfter);
    this.#breaker.succeeded();
    return result;
  }

  /** Hint for a timeout among other requests. */
  #crowd(): string {
    if (this.#open < 2 || this.#connections !== undefined) return '';
    return `, with ${this.#open - 1} other requests open; for a service that serves one connection at a time set "connections": 1 in its definition`;
  }

  /**
   * Parses a reply as JSON.
   * @param what the request, for messages
   * @throws Problem `remote_failed`
   */
  readJson(text: string, what: string): Json {
    try {
      return readAnswer(text, this.network.answerLimits);
    } catch (error) {
      if (!(error instanceof JsonOutOfBounds)) {
        throw this.failed(`answered ${what} with something that is not JSON`);
      }
      throw this.failed(`answered ${what} with JSON that cannot be taken: ${error.message}`);
    }
  }

  /**
   * Reads an answer of the service.
   * @throws Problem `remote_failed` when it is malformed
   */
  reading<T>(read: () => T): T {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof InvalidAnswer)) throw error;
      throw this.failed(`gave a wrong answer: ${error.message}`);
    }
  }

  failed(what: string, cause?: unknown): Problem {
    return new Problem('remote_failed', `the service of ${this.name} ${what}`, { cause });
  }

  unavailable(what: string, retryAfterSeconds?: number): Problem {
    return new Problem('remote_unavailable', `the service of ${this.name} ${what}`, { retryAfterSeconds });
  }

  #problemOf(error: unknown, signal: AbortSignal): Problem {
    if (error instanceof Problem) return error;
    if (error instanceof BadReply) return this.failed(error.message);
    const cause = rootOf(error);
    if (cause instanceof UnresolvedHost) {
      return this.unavailable(`cannot be reached: ${cause.message}`);
    }
    if (cause instanceof ForbiddenAddress) return this.failed(`may not be reached: ${cause.message}`);
    if (NOT_CONNECTED.has(codeOf(error))) {
      return this.unavailable(`cannot be reached (${codeOf(error)})`);
    }
    if (signal.aborted) return this.failed(`did not answer within ${this.timeoutMs} ms${this.#crowd()}`);
    const code = codeOf(error);
    if (DISCONNECTED.has(code))
      return this.failed(`closed the connection before its answer was whole (${code})`);
    if (CERTIFICATE.test(code)) return this.failed(`has a certificate that is not trusted: ${cause.message}`);
    if (TLS.test(code))
      return this.failed(`does not answer in TLS (${code}); without TLS its url begins with http://`);
    return this.failed(`cannot be understood: ${cause.message || code}`, error);
  }
}

/** A reply that is none. */
class BadReply extends Error {}

function rootOf(error: unknown): Error {
  if (error instanceof AggregateError && error.errors.length > 0) return rootOf(error.errors[0]);
  if (error instanceof Error && error.cause instanceof Error) return rootOf(error.cause);
  return error instanceof Error ? error : new Error(String(error));
}

function codeOf(error: unknown): string {
  return String((rootOf(error) as NodeJS.ErrnoException).code ?? '');
}

function baseOf(url: string): URL {
  if (!URL.canParse(url)) throw invalidDefinition('/url', `"${url}" is not an address`);
  const base = new URL(url);
  if (base.protocol !== 'http:' && base.protocol !== 'https:') {
    throw invalidDefinition('/url', 'must begin with http:// or https://');
  }
  if (base.search !== '' || base.hash !== '') throw invalidDefinition('/url', 'must not hold ? or #');
  if (!base.pathname.endsWith('/')) base.pathname += '/';
  return base;
}

function headersOf(given: Headers = {}): Headers {
  const headers: [string, HeaderValue][] = [];
  for (const [name, value] of Object.entries(given)) {
    const lower = name.toLowerCase();
    if (!HEADER_NAME.test(lower) || (typeof value === 'string' && UNSENDABLE.test(value))) {
      throw invalidDefinition('/headers', `"${name}" cannot be sent as a header`);
    }
    if (OWN_HEADERS.has(lower)) {
      throw invalidDefinition('/headers', `"${name}" belongs to the connection and cannot be set`);
    }
    headers.push([lower, value]);
  }
  return Object.fromEntries(headers);
}

/** The beginning of any value that a service reports, as text. */
export function excerpt(value: Json | undefined): string {
  const text = typeof value === 'string' ? value : (JSON.stringify(value) ?? 'nothing');
  return text.slice(0, MAX_DETAIL_LENGTH);
}

/** Text of an error reply: its `detail` or `error`; FastAPI's list of faults as one text. */
export function detailOf(body: unknown): string | undefined {
  if (!isObject(body)) return undefined;
  const { detail, error } = body;
  if (typeof detail === 'string') return detail.slice(0, MAX_DETAIL_LENGTH);
  if (Array.isArray(detail)) return detail.map(faultText).join('; ').slice(0, MAX_DETAIL_LENGTH);
  return typeof error === 'string' ? error.slice(0, MAX_DETAIL_LENGTH) : undefined;
}

function faultText(fault: unknown): string {
  if (!isObject(fault) || typeof fault.msg !== 'string') return JSON.stringify(fault);
  return Array.isArray(fault.loc) ? `${fault.loc.map(excerpt).join('.')}: ${fault.msg}` : fault.msg;
}

/** The text of an error reply for the end of a message; empty without one. */
export function afterColon(body: unknown): string {
  const detail = detailOf(body);
  return detail === undefined ? '' : `: ${detail}`;
}
