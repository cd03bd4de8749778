import { randomUUID } from 'node:crypto';
import { errors, Pool } from 'undici';
import { WebSocket } from 'ws';
import { interimLimit, LateBody, textOf } from '../../shared/http/chunks.ts';
import { trainerLog } from '../../shared/log.ts';
import { MAX_REPLY_BYTES } from './reply.ts';

/** The client's requirements of Node or of a browser. */

export interface HttpSettings {
  readonly connections: number;
  readonly connectTimeoutMs: number;
  readonly replyTimeoutMs: number;
  readonly keepAliveMs: number;
}

export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Below the origin. */
  readonly path: string;
  readonly headers?: { readonly [name: string]: string };
  readonly body?: string;
  readonly signal?: AbortSignal;
}

export interface HttpReply {
  readonly status: number;
  header(name: string): string | undefined;
  readonly text: string;
}

export interface HttpConnections {
  /** @throws an error that `failureOf` knows */
  request(request: HttpRequest): Promise<HttpReply>;
  close(): Promise<void>;
}

export type HttpFailure = 'connect_timeout' | 'reply_timeout' | 'too_large' | 'broken';

export interface SocketOptions {
  readonly protocol: string;
  readonly token: string | undefined;
}

export interface SocketEvents {
  readonly open: () => void;
  readonly message: (text: string) => void;
  readonly error: (error: Error) => void;
  /** A frame is larger than {@link MAX_REPLY_BYTES}, and the socket is closed. Browsers do not report it. */
  readonly tooLarge: () => void;
  /** The server answered the upgrade with a status. Browsers do not report it. */
  readonly refused: (status: number) => void;
  readonly close: (code: number) => void;
}

export interface Socket {
  send(text: string): void;
  /** Ends it without waiting for the server. */
  terminate(): void;
}

/** The client's platform in Node; `platform-browser.ts` is its counterpart for browsers. */

/** Connections to a server, kept open. */
export function openHttp(origin: string, settings: HttpSettings): HttpConnections {
  const pool = new Pool(origin, {
    connections: settings.connections,
    keepAliveTimeout: settings.keepAliveMs,
    connect: { timeout: settings.connectTimeoutMs },
    headersTimeout: settings.replyTimeoutMs,
    bodyTimeout: settings.replyTimeoutMs,
    maxResponseSize: MAX_REPLY_BYTES,
  });
  return {
    async request(request) {
      const { statusCode, headers, body } = await pool.request({ ...request, onInfo: interimLimit() });
      const text = await textOf(body, { maxMs: settings.replyTimeoutMs });
      return {
        status: statusCode,
        header(name) {
          const value = headers[name];
          return Array.isArray(value) ? value[0] : value;
        },
        text,
      };
    },
    close: () => pool.destroy(),
  };
}

/** Why a request failed. */
export function failureOf(error: unknown): HttpFailure {
  if (error instanceof errors.ConnectTimeoutError) return 'connect_timeout';
  if (error instanceof errors.ResponseExceededMaxSizeError) return 'too_large';
  const isLate = error instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError;
  return isLate || error instanceof LateBody ? 'reply_timeout' : 'broken';
}

export function openSocket(url: string, { protocol, token }: SocketOptions, on: SocketEvents): Socket {
  const headers: { [name: string]: string } = token === undefined ? {} : { authorization: `Bearer ${token}` };
  const socket = new WebSocket(url, protocol, {
    headers,
    perMessageDeflate: false,
    maxPayload: MAX_REPLY_BYTES,
  });
  socket.on('error', (error: NodeJS.ErrnoException) =>
    error.code === 'WS_ERR_UNSUPPORTED_MESSAGE_LENGTH' ? on.tooLarge() : on.error(error),
  );
  socket.on('unexpected-response', (_request, response) => on.refused(response.statusCode ?? 0));
  socket.on('close', on.close);
  socket.on('message', data => on.message(String(data)));
  socket.on('open', on.open);
  return {
    send: text => socket.send(text),
    terminate: () => socket.terminate(),
  };
}

/** Runs the work after all arrived data has been read. */
export function afterReading(work: () => void): void {
  setImmediate(work);
}

/** Calls a function at an interval without keeping the process alive. */
export function repeat(work: () => void, ms: number): () => void {
  const timer = setInterval(work, ms);
  timer.unref();
  return () => clearInterval(timer);
}

export const randomName = (): string => randomUUID();

/** A variable of the environment. */
export const variable = (name: string): string | undefined => process.env[name];

/** Notes a request in the log. */
export function note(record: object, message: string): void {
  trainerLog().debug(record, message);
}
