import { connect, createServer, type Socket } from 'node:net';
import type { Test } from 'tap';
import { listenLocally } from '../../test/local-server.test-data.ts';

/** A line to a server that can be cut, silenced and made to lose replies. */
export interface Proxy {
  readonly url: string;
  /** Connections taken so far. */
  readonly connections: number;
  /** Breaks every connection that stands. */
  cut(): void;
  /** The next reply is lost: the connection breaks when it comes. Resolves when that has happened. */
  loseReply(): Promise<void>;
  /** While silent nothing passes, and nothing breaks. */
  silent: boolean;
}

/** A proxy to a server; it ends with the test. */
export async function proxy(t: Test, target: string): Promise<Proxy> {
  const { hostname, port } = new URL(target);
  const sockets = new Set<Socket>();
  let lost: (() => void) | undefined;
  const self = { silent: false, connections: 0 };
  const server = createServer(client => {
    self.connections++;
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ]) {
      sockets.add(from);
      from.on('error', () => {});
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
    client.on('data', data => {
      if (!self.silent) upstream.write(data);
    });
    upstream.on('data', data => {
      if (lost) {
        lost();
        lost = undefined;
        client.destroy();
      } else if (!self.silent) client.write(data);
    });
  });
  const { url } = await listenLocally(t, server);
  const cut = (): void => {
    for (const socket of sockets) socket.destroy();
  };
  t.teardown(cut);
  return Object.assign(self, {
    url,
    cut,
    loseReply: () =>
      new Promise<void>(resolve => {
        lost = resolve;
      }),
  });
}
