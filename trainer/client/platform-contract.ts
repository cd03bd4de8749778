/** The client's requirements of Node or of a browser. */

export interface HttpSettings {
  readonly connections: number;
  readonly connectTimeoutMs: number;
  readonly replyTimeoutMs: number;
  readonly keepAliveMs: number;
}

interface HttpRequest {
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

export type HttpFailure = 'connect_timeout' | 'reply_timeout' | 'broken';

export interface SocketOptions {
  readonly protocol: string;
  readonly token: string | undefined;
}

export interface SocketEvents {
  readonly open: () => void;
  readonly message: (text: string) => void;
  readonly error: (error: Error) => void;
  /** The server answered the upgrade with a status. Browsers do not report it. */
  readonly refused: (status: number) => void;
  readonly close: (code: number) => void;
}

export interface Socket {
  send(text: string): void;
  /** Ends it without waiting for the server. */
  terminate(): void;
}
