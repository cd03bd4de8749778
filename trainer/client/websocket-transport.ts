import { retry } from '../../shared/http/retry.ts';
import { parseShallowJson } from '../../shared/json.ts';
import type { Request, Schemas } from './operations.ts';
import { afterReading, openSocket, repeat, type Socket } from './platform.ts';
import { type BatchReply, isProblem, readBatch, TOO_LARGE } from './reply.ts';
import {
  type Availability,
  awayDelay,
  BadReply,
  ClientClosed,
  ConnectionFailed,
  ConnectTimeout,
  ReplyTimeout,
  type RetryPolicy,
  ServerProblem,
} from './retry.ts';

export interface WebSocketTransportSettings {
  readonly connectTimeoutMs: number;
  readonly replyTimeoutMs: number;
  /** Interval of probes on a silent socket; it is closed if the next probe finds the last unanswered. */
  readonly heartbeatMs: number;
}

export const DEFAULT_SOCKET: WebSocketTransportSettings = {
  connectTimeoutMs: 5_000,
  replyTimeoutMs: 60_000,
  heartbeatMs: 10_000,
};

const SUBPROTOCOL = 'ragen.json';
const EXCERPT_LENGTH = 200;
const PING = JSON.stringify({ id: 0, op: 'ping' });

interface Pending {
  readonly operation: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: Error) => void;
  readonly timer: ReturnType<typeof setTimeout>;
}

/**
 * The WebSocket transport of a server:many requests in flight on one socket, matched by id, answered in any order. The
 * socket is opened on first use and again after it broke; all waiting requests share one attempt to connect, so a server
 * that is down is knocked at by one, not by every episode. Requests in flight on a broken socket are rejected with
 * ConnectionFailed: their keys make it safe to send them again.
 */
export class WebSocketTransport {
  readonly #server: string;
  readonly #url: string;
  readonly #token: string | undefined;
  readonly #settings: WebSocketTransportSettings;
  readonly #retry: RetryPolicy;
  readonly #availability: Availability;
  readonly #pending = new Map<number, Pending>();
  readonly #closed = new AbortController();
  #socket: Socket | undefined;
  #opening: Promise<Socket> | undefined;
  #nextId = 1;
  #heard = true;
  #stopHeartbeat: (() => void) | undefined;

  constructor(
    url: URL,
    token: string | undefined,
    settings: WebSocketTransportSettings,
    retry: RetryPolicy,
    availability: Availability,
  ) {
    this.#server = url.origin;
    const prefix = url.pathname.replace(/\/$/, '');
    this.#url = `${url.protocol === 'https:' ? 'wss:' : 'ws:'}//${url.host}${prefix}/v1/ws`;
    this.#token = token;
    this.#settings = settings;
    this.#retry = retry;
    this.#availability = availability;
  }

  /**
   * Many requests in one frame; each gets its result or its error, in order.
   * @param items the requests as the items of a batch
   * @throws ServerProblem, ConnectionFailed, ReplyTimeout, BadReply, ServerUnavailable, ClientClosed
   */
  async exchangeBatch(requests: readonly Request[], items: string): Promise<BatchReply[]> {
    const value = await this.#send('batch', `"items":[${items}]`);
    return readBatch(this.#server, requests, value);
  }

  close(): void {
    const reason = new ClientClosed(this.#server);
    this.#closed.abort(reason);
    this.#drop(reason);
  }

  async #send(operation: string, fields: string): Promise<unknown> {
    this.#closed.signal.throwIfAborted();
    const socket = this.#socket ?? (await this.#opened());
    return new Promise((resolve, reject) => {
      const id = this.#nextId++;
      const { replyTimeoutMs } = this.#settings;
      const timer = setTimeout(() => {
        this.#pending.delete(id);
        reject(new ReplyTimeout(this.#server, operation, replyTimeoutMs));
      }, replyTimeoutMs);
      this.#pending.set(id, { operation, resolve, reject, timer });
      if (socket !== this.#socket) {
        this.#settle(id)?.reject(new ConnectionFailed(this.#server, 'the connection broke'));
        return;
      }
      socket.send(`{"id":${id},"op":"${operation}",${fields}}`);
    });
  }

  #opened(): Promise<Socket> {
    this.#opening ??= this.#open().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /**
   * Connects; waits for an unavailable server.
   * @throws ServerUnavailable after the policy's patience
   */
  async #open(): Promise<Socket> {
    const { signal } = this.#closed;
    const pauseAfter = (error: unknown, attempt: number): number => {
      if (!(error instanceof ConnectionFailed)) throw error;
      return awayDelay(this.#server, error, attempt, this.#retry, this.#availability);
    };
    const socket = await retry(() => this.#connect(), pauseAfter, signal);
    signal.throwIfAborted();
    this.#availability.answered();
    return socket;
  }

  #connect(): Promise<Socket> {
    const { connectTimeoutMs } = this.#settings;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        reject(new ConnectTimeout(this.#server, connectTimeoutMs));
        socket.terminate();
      }, connectTimeoutMs);
      const fail = (failure: Error) => {
        clearTimeout(timer);
        reject(failure);
        if (socket === this.#socket) this.#drop(failure);
      };
      const options = { protocol: SUBPROTOCOL, token: this.#token };
      const socket: Socket = openSocket(this.#url, options, {
        tooLarge: () => fail(new BadReply(this.#server, 'a frame', TOO_LARGE)),
        error: error => fail(new ConnectionFailed(this.#server, 'the connection failed', error)),
        refused: status => {
          clearTimeout(timer);
          reject(refusal(this.#server, status));
          socket.terminate();
        },
        close: code => fail(new ConnectionFailed(this.#server, `the connection was closed (code ${code})`)),
        message: text => this.#receive(text),
        open: () => {
          clearTimeout(timer);
          this.#socket = socket;
          this.#heard = true;
          this.#stopHeartbeat = repeat(() => this.#probe(), this.#settings.heartbeatMs);
          resolve(socket);
        },
      });
    });
  }

  #receive(text: string): void {
    this.#heard = true;
    const frame = frameOf(text);
    if (frame === undefined) {
      this.#drop(new BadReply(this.#server, 'a frame', text.slice(0, EXCERPT_LENGTH)));
      return;
    }
    const pending = this.#settle(Number(frame.id));
    if (!pending) {
      if (frame.id === null && !frame.ok && isProblem(frame.error)) {
        this.#drop(new ServerProblem(this.#server, 'a frame', frame.error));
      }
      return;
    }
    if (frame.ok) pending.resolve(frame.result);
    else if (isProblem(frame.error)) {
      pending.reject(new ServerProblem(this.#server, pending.operation, frame.error));
    } else pending.reject(new BadReply(this.#server, pending.operation, text.slice(0, EXCERPT_LENGTH)));
  }

  #settle(id: number): Pending | undefined {
    const pending = this.#pending.get(id);
    if (!pending) return undefined;
    this.#pending.delete(id);
    clearTimeout(pending.timer);
    return pending;
  }

  /** Finds half-open connections, where nothing arrives and nothing fails. */
  #probe(): void {
    const socket = this.#socket;
    if (this.#heard) {
      this.#heard = false;
      socket?.send(PING);
      return;
    }
    // After a long task the answer may still be unread: check again after it has been read.
    afterReading(() => {
      if (!this.#heard && socket === this.#socket) {
        this.#drop(new ConnectionFailed(this.#server, 'the connection is dead'));
      }
    });
  }

  #drop(reason: Error): void {
    this.#stopHeartbeat?.();
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.terminate();
    for (const id of [...this.#pending.keys()]) this.#settle(id)?.reject(reason);
  }
}

/** A frame of a server; undefined for a text that is none. */
function frameOf(text: string): Schemas['ReplyFrame'] | undefined {
  const frame = parseShallowJson(text);
  return typeof frame === 'object' && frame !== null ? (frame as Schemas['ReplyFrame']) : undefined;
}

const UNAUTHORISED: ReadonlySet<number> = new Set([401, 403]);

/** Why a server rejected the upgrade: permanently, or because it is starting or draining. */
function refusal(server: string, status: number): Error {
  if (UNAUTHORISED.has(status)) {
    return new Error(`${server} refused the connection with ${status}: give a valid token for this server`);
  }
  if (status === 404) return new BadReply(server, 'the WebSocket upgrade', 'status 404');
  return new ConnectionFailed(server, `the server refused the connection with status ${status}`);
}
