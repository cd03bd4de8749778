import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Test } from 'tap';
import { NetworkGuard, type OwnedNetwork, RemoteNetwork } from './network.ts';

/** A request as a service got it. */
export interface Received {
  readonly method: string;
  readonly path: string;
  readonly headers: IncomingMessage['headers'];
  readonly body: { readonly [key: string]: never } & { readonly [key: string]: unknown };
}

export interface Answer {
  readonly status?: number;
  readonly headers?: { readonly [name: string]: string };
  /** An object is sent as JSON, a text as it is; undefined closes the connection. */
  readonly body?: unknown;
}

export interface TestService {
  readonly url: string;
  readonly port: number;
  readonly received: Received[];
  readonly server: Server;
}

type Closing = Pick<Test, 'teardown'>;

/** An HTTP service on this machine that answers as given and records its requests. */
export async function testService(
  t: Closing,
  answer: (request: Received) => Answer | Promise<Answer>,
): Promise<TestService> {
  const received: Received[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const asked = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: text === '' ? {} : JSON.parse(text),
    };
    received.push(asked);
    const { status = 200, headers = {}, body } = await answer(asked);
    if (body === undefined) {
      request.socket.destroy();
      return;
    }
    response.writeHead(status, { 'content-type': 'application/json', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
  });
  const port = await listen(server);
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://127.0.0.1:${port}`, port, received, server };
}

/** Listens on a free port of this machine and gives its number. */
export async function listen(server: Server, port = 0): Promise<number> {
  await new Promise<void>(resolve => server.listen(port, '127.0.0.1', resolve));
  return (server.address() as AddressInfo).port;
}

/** A network that may reach services on this machine. */
export function localNetwork(t: Closing, remoteNetworks = '127.0.0.1'): OwnedNetwork {
  const network = new RemoteNetwork(new NetworkGuard({ remoteHosts: '*', remoteNetworks }));
  t.teardown(() => network.close());
  return { network, owner: 'me' };
}
