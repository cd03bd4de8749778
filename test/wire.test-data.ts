import { once } from 'node:events';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { decode, encode } from '@msgpack/msgpack';
import type { Test } from 'tap';
import { WebSocket } from 'ws';
import type { Settings } from '../env-server/config/settings.ts';
import { type Body, type TestApp, testApp } from './app.test-data.ts';

/** A test server that listens on a free port of this machine. */
export async function listening(t: Test, settings: Partial<Settings> = {}): Promise<TestApp> {
  const app = await testApp(t, settings);
  await app.server.listen({ port: 0, host: '127.0.0.1' });
  return app;
}

/** Host and port of a server that listens. */
export function hostOf({ server }: Pick<TestApp, 'server'>): string {
  return `127.0.0.1:${(server.server.address() as AddressInfo).port}`;
}

/** A WebSocket as its client sees it. */
export interface Wire {
  readonly socket: WebSocket;
  /** Replies in the order they came. */
  readonly replies: Body[];
  /** An object is sent as JSON, or as MessagePack under `ragen.msgpack`; a text as it is. */
  send(frame: object | string): void;
  /** The next reply that has not been taken. */
  next(): Promise<Body>;
}

/**
 * Opens a WebSocket; it is cut after the test.
 * @param path begins with a slash
 */
export async function dial(
  t: Pick<Test, 'teardown'>,
  app: Pick<TestApp, 'server'>,
  path: string,
  { protocol, headers }: { protocol?: string; headers?: { [name: string]: string } } = {},
): Promise<Wire> {
  const socket = new WebSocket(`ws://${hostOf(app)}${path}`, protocol, { headers });
  t.teardown(() => socket.terminate());
  const replies: Body[] = [];
  let taken = 0;
  const packed = protocol === 'ragen.msgpack';
  socket.on('message', (data, isBinary) => {
    if (isBinary !== packed) throw new Error(`a ${isBinary ? 'binary' : 'text'} frame under ${protocol}`);
    replies.push((packed ? decode(data as Buffer) : JSON.parse(data.toString())) as Body);
  });
  const open = new AbortController();
  socket.on('close', code => open.abort(new Error(`the server closed the socket with ${code}`)));
  await once(socket, 'open');
  return {
    socket,
    replies,
    send: frame =>
      socket.send(typeof frame === 'string' ? frame : packed ? encode(frame) : JSON.stringify(frame)),
    async next() {
      while (replies.length <= taken) await once(socket, 'message', open);
      return replies[taken++];
    },
  };
}

/** A server's reply to bytes that no client library would send. */
export interface RawReply {
  readonly status: number;
  /** Status line and headers. */
  readonly head: string;
  readonly body: string;
}

/** Sends a request as it is written, lines separated by `\n`; `Connection: close` is added. */
export async function sendRaw(app: Pick<TestApp, 'server'>, head: string, body = ''): Promise<RawReply> {
  const [host, port] = hostOf(app).split(':');
  const socket = connect(Number(port), host);
  const [first, ...others] = head.split('\n');
  socket.write(`${[first, ...others, 'Connection: close'].join('\r\n')}\r\n\r\n${body}`);
  const reply = await text(socket);
  const end = reply.indexOf('\r\n\r\n');
  return { status: Number(reply.slice(9, 12)), head: reply.slice(0, end), body: reply.slice(end + 4) };
}
