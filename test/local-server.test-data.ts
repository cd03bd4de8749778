import { once } from 'node:events';
import { createServer, Server as HttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo, Server } from 'node:net';
import { text } from 'node:stream/consumers';
import type { Test } from 'tap';

/** Port and address of a server that listens. */
export interface LocalServer {
  readonly port: number;
  /** Without a slash at its end. */
  readonly url: string;
}

/** Has a server listen on a free port of this machine until the test ends. */
export async function listenLocally(t: Pick<Test, 'teardown'>, server: Server): Promise<LocalServer> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    if (server instanceof HttpServer) server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  return { port, url: `http://127.0.0.1:${port}` };
}

/** An HTTP server of this machine that answers as the test says, until it ends. */
export function serveHttp(
  t: Pick<Test, 'teardown'>,
  answer: (request: IncomingMessage, response: ServerResponse, body: string) => unknown,
): Promise<LocalServer> {
  const server = createServer((request, response) => {
    text(request).then(
      body => answer(request, response, body),
      () => response.destroy(),
    );
  });
  return listenLocally(t, server);
}
