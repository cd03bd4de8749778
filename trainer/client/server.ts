import { pause } from '../../shared/http/retry.ts';
import { withoutCredentials } from '../../shared/text.ts';
import {
  itemsOf,
  needsKey,
  type Operation,
  type OperationInput,
  type OperationResult,
  type Request,
  type Schemas,
} from './operations.ts';
import { afterReading, note, randomName, variable } from './platform.ts';
import type { BatchReply } from './reply.ts';
import {
  DEFAULT_HTTP,
  type ForwardedReply,
  type ForwardedRequest,
  RestTransport,
  type RestTransportSettings,
} from './rest-transport.ts';
import {
  Availability,
  ClientClosed,
  classify,
  DEFAULT_RETRY,
  type RetryPolicy,
  retrying,
  ServerUnavailable,
  type WaitEvents,
} from './retry.ts';
import {
  DEFAULT_SOCKET,
  WebSocketTransport,
  type WebSocketTransportSettings,
} from './websocket-transport.ts';

/**
 * Most characters of a batch, so that large requests of one program do not have those of others refused: servers take
 * 4 MiB, and a character has up to three bytes.
 */
const MAX_BATCH_LENGTH = 1024 * 1024;

interface BatchUnit {
  readonly requests: readonly Request[];
  /** The requests as items of a batch. */
  readonly items: string;
  readonly resolve: (replies: BatchReply[]) => void;
  readonly reject: (error: unknown) => void;
}

/** Sends requests, which are also given as the items of a batch. */
type ExchangeBatch = (requests: readonly Request[], items: string) => Promise<BatchReply[]>;

/**
 * Collects requests of one turn of the event loop in one batch. Requests passed together stay together and in order, so
 * the steps of a session run in the requested order.
 */
export class Batcher {
  readonly #exchange: ExchangeBatch;
  readonly #maxItems: number;
  #waiting: BatchUnit[] = [];

  /** @param maxItems larger batches are split */
  constructor(exchange: ExchangeBatch, maxItems: number) {
    this.#exchange = exchange;
    this.#maxItems = maxItems;
  }

  /**
   * The replies in the order of the requests; rejects when the batch as a whole got none, or when these requests cannot
   * be written.
   */
  add(requests: readonly Request[]): Promise<BatchReply[]> {
    return new Promise((resolve, reject) => {
      const items = itemsOf(requests);
      if (this.#waiting.length === 0) afterReading(() => this.#flush());
      this.#waiting.push({ requests, items, resolve, reject });
    });
  }

  #flush(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    let units: BatchUnit[] = [];
    let size = 0;
    let length = 0;
    for (const unit of waiting) {
      const isFull = size + unit.requests.length > this.#maxItems;
      if (size > 0 && (isFull || length + unit.items.length > MAX_BATCH_LENGTH)) {
        this.#send(units);
        units = [];
        size = 0;
        length = 0;
      }
      units.push(unit);
      size += unit.requests.length;
      length += unit.items.length;
    }
    this.#send(units);
  }

  #send(units: readonly BatchUnit[]): void {
    const requests = units.flatMap(unit => unit.requests);
    this.#exchange(requests, units.map(unit => unit.items).join(',')).then(
      replies => {
        let start = 0;
        for (const unit of units) {
          unit.resolve(replies.slice(start, start + unit.requests.length));
          start += unit.requests.length;
        }
      },
      error => {
        for (const unit of units) unit.reject(error);
      },
    );
  }
}

export interface EnvServerSettings {
  /** Address of the server, e.g. `http://127.0.0.1:8080`; a path prefix is kept. */
  readonly url: string;
  /** Sent as bearer token; without it that of the variable `RAGEN_TOKEN`, which stays out of the run's folder. */
  readonly token?: string;
  /** Share of new groups for this server, relative to the others; 1 by default. */
  readonly weight?: number;
  /** Weights for groups of single tags, if different; 0: none of them. */
  readonly tagWeights?: { readonly [tag: string]: number };
  /** Transport of {@link EnvServer.batched} calls; one WebSocket by default. */
  readonly transport?: 'websocket' | 'http';
  /** Most requests in one batch. */
  readonly maxBatch?: number;
  readonly retry?: Partial<RetryPolicy>;
  readonly http?: Partial<RestTransportSettings>;
  readonly socket?: Partial<WebSocketTransportSettings>;
}

const TOKEN_VARIABLE = 'RAGEN_TOKEN';
const DEFAULT_MAX_BATCH = 256;
const CLOSING_GRACE_MS = 1_000;

/**
 * The client of one environment server. Requests are repeated until they succeed, the failure is final or the server stays
 * away too long. Every request that changes something carries a key, so that nothing happens twice.
 *
 * @example
 * const server = new EnvServer({ url: 'http://127.0.0.1:8080' });
 * const session = await server.call('create', { env_id: 'FrozenLake-v0', seed: 7 });
 * const { reward } = await server.call('step', { session_id: session.session_id, action: 'Up' });
 * await server.close();
 */
export class EnvServer {
  readonly name: string;
  readonly weight: number;
  readonly #tagWeights: { readonly [tag: string]: number };
  readonly #http: RestTransport;
  readonly #socket: WebSocketTransport | undefined;
  readonly #batcher: Batcher;
  readonly #retry: RetryPolicy;
  readonly #availability: Availability;
  readonly #closed = new AbortController();
  readonly #nextKey = requestKeys();
  #underWay = 0;
  #idle: (() => void) | undefined;
  #watching = false;

  /**
   * @param events called when the server is away and when it is back
   * @throws Error when the URL is not http(s) or has a password, or the weight is not positive
   */
  constructor(settings: EnvServerSettings, events: WaitEvents = {}) {
    const url = parseUrl(settings.url);
    this.name = url.origin;
    this.weight = settings.weight ?? 1;
    if (!(this.weight > 0))
      throw new RangeError(`the weight of ${this.name} must be above 0, got ${this.weight}`);
    this.#tagWeights = settings.tagWeights ?? {};
    for (const [tag, weight] of Object.entries(this.#tagWeights)) {
      if (!(weight >= 0))
        throw new RangeError(`the weight of ${this.name} for ${tag} must be at least 0, got ${weight}`);
    }
    this.#retry = { ...DEFAULT_RETRY, ...settings.retry };
    this.#availability = new Availability(this.name, events);
    const token = settings.token ?? variable(TOKEN_VARIABLE);
    const http = new RestTransport(url, token, { ...DEFAULT_HTTP, ...settings.http });
    this.#http = http;
    const maxBatch = settings.maxBatch ?? DEFAULT_MAX_BATCH;
    if (settings.transport === 'http') {
      this.#batcher = new Batcher((...batch) => http.exchangeBatch(...batch, this.#closed.signal), maxBatch);
    } else {
      const socketSettings = { ...DEFAULT_SOCKET, ...settings.socket };
      const socket = new WebSocketTransport(url, token, socketSettings, this.#retry, this.#availability);
      this.#socket = socket;
      this.#batcher = new Batcher((...batch) => socket.exchangeBatch(...batch), maxBatch);
    }
  }

  /** The server is down, draining or full, and requests wait for it. */
  get away(): boolean {
    return this.#availability.away;
  }

  /** Its share of the groups of a tag, relative to other servers. */
  weightFor(tag: string | undefined): number {
    return tag === undefined ? this.weight : (this.#tagWeights[tag] ?? this.weight);
  }

  /** A request, with a new key if it changes something: repeated any number of times, it acts once. */
  request<O extends Operation>(op: O, input: OperationInput<O>): Request<O> {
    return needsKey(op) ? { op, input, key: this.#nextKey() } : { op, input };
  }

  /**
   * One operation by REST.
   * @throws ServerProblem, ServerUnavailable, ReplyTimeout, BadReply, ClientClosed
   */
  call<O extends Operation>(op: O, input: OperationInput<O>): Promise<OperationResult<O>> {
    const request = this.request(op, input);
    return this.#retrying(op, 1, () => this.#http.exchange(request, this.#closed.signal));
  }

  /**
   * Forwards another program's request with the token of this client, for gateways. One attempt.
   * @throws ConnectionFailed, ReplyTimeout
   */
  forward(request: ForwardedRequest): Promise<ForwardedReply> {
    return this.#http.forward(request, this.#closed.signal);
  }

  /**
   * Requests that belong together, sent with all others of the same turn of the event loop, with many batches in flight
   * on one connection. Each gets its result or its final problem; other errors as for {@link call}.
   * @param mayWait see {@link RetryPolicy}
   */
  batch(requests: readonly Request[], mayWait?: RetryPolicy['mayWait']): Promise<BatchReply[]> {
    const work = async () => {
      const replies = await this.#batcher.add(requests);
      for (const reply of replies) {
        if (reply instanceof Error && classify(reply) !== 'final') throw reply;
      }
      return replies;
    };
    return this.#retrying('batch', requests.length, work, mayWait);
  }

  /** {@link batch} for a single request. */
  async batched<O extends Operation>(
    op: O,
    input: OperationInput<O>,
    mayWait?: RetryPolicy['mayWait'],
  ): Promise<OperationResult<O>> {
    const [reply] = await this.batch([this.request(op, input) as Request], mayWait);
    if (reply instanceof Error) throw reply;
    return reply as OperationResult<O>;
  }

  /** The environment under a configuration: instruction, legend, actions, spaces. */
  describe(
    environmentId: string,
    config: { readonly [key: string]: unknown } = {},
  ): Promise<Schemas['Environment']> {
    return this.call('describe_environment', { env_id: environmentId, config });
  }

  /** Gives requests in progress a moment to end, then ends them with ClientClosed. Sessions stay until they expire. */
  async close(): Promise<void> {
    if (this.#underWay > 0 && !this.away) {
      const idle = new Promise<void>(resolve => {
        this.#idle = resolve;
      });
      await Promise.race([idle, pause(CLOSING_GRACE_MS, this.#closed.signal)]);
    }
    this.#socket?.close();
    this.#closed.abort(new ClientClosed(this.name));
    await this.#http.close();
  }

  async #retrying<T>(
    op: string,
    items: number,
    attempt: () => Promise<T>,
    mayWait?: RetryPolicy['mayWait'],
  ): Promise<T> {
    this.#underWay++;
    const start = performance.now();
    let failure: string | undefined;
    try {
      const policy = mayWait ? { ...this.#retry, mayWait } : this.#retry;
      return await retrying(this.name, attempt, policy, this.#availability, this.#closed.signal);
    } catch (error) {
      failure = (error as Error).message;
      if (error instanceof ServerUnavailable) {
        this.#availability.givenUp();
        void this.#watchForReturn();
      }
      throw error;
    } finally {
      const ms = Math.round(performance.now() - start);
      note({ server: this.name, op, items, ms, failure }, 'request');
      this.#underWay--;
      if (this.#underWay === 0) this.#idle?.();
    }
  }

  /** When all requests have given a server up, probes it at intervals until it is ready. */
  async #watchForReturn(): Promise<void> {
    if (this.#watching) return;
    this.#watching = true;
    const { signal } = this.#closed;
    try {
      while (this.away) {
        await pause(this.#retry.probeMs, signal);
        if (await this.#http.ready(signal)) this.#availability.answered();
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.#watching = false;
    }
  }
}

function parseUrl(text: string): URL {
  if (!/^https?:\/\//.test(text) || !URL.canParse(text)) {
    throw new Error(
      `a server's url reads http://host:port or https://host:port, got ${JSON.stringify(withoutCredentials(text))}`,
    );
  }
  const url = new URL(text);
  if (url.username === '' && url.password === '') return url;
  throw new Error(
    `the url of ${url.origin} has a user name or password, which is not sent: give a token by \`token\` or the variable ${TOKEN_VARIABLE}`,
  );
}

/** Makes unique keys: a random name and a counter. */
function requestKeys(): () => string {
  const client = randomName();
  let count = 0;
  return () => `${client}-${count++}`;
}
