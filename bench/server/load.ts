import { connect } from 'node:net';
import { performance } from 'node:perf_hooks';
import { WebSocket } from 'ws';

/** One client with one request in flight: sends the text of a request, gets the text of the reply. */
export interface Client {
  /**
   * @param path where HTTP posts it
   * @param headers that HTTP adds, each with its line break
   */
  ask(body: string, path: string, headers?: string): Promise<string>;
  close(): void;
}

export type Connect = (origin: string, token: string) => Promise<Client>;

const HEADER_END = '\r\n\r\n';

/** HTTP/1.1 by hand on one kept-alive connection: a full client would be slower than the servers it measures. */
export async function httpClient(origin: string, token: string): Promise<Client> {
  const { hostname, port } = new URL(origin);
  const socket = connect({ host: hostname, port: Number(port), noDelay: true });
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve);
    socket.once('error', reject);
  });
  socket.setEncoding('latin1');
  const head = ` HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\nContent-Length: `;
  let received = '';
  let answer: ((body: string) => void) | undefined;
  socket.on('data', (chunk: string) => {
    received += chunk;
    const headerEnd = received.indexOf(HEADER_END);
    if (headerEnd < 0) return;
    const match = /content-length: (\d+)/i.exec(received);
    if (!match) throw new Error(`no content-length in ${received.slice(0, headerEnd)}`);
    const start = headerEnd + HEADER_END.length;
    const end = start + Number(match[1]);
    if (received.length < end) return;
    if (!received.startsWith('HTTP/1.1 2')) throw new Error(received);
    const body = received.slice(start, end);
    received = received.slice(end);
    answer?.(body);
  });
  return {
    ask(body, path, headers = '') {
      const reply = new Promise<string>(resolve => {
        answer = resolve;
      });
      socket.write(`POST ${path}${head}${Buffer.byteLength(body)}\r\n${headers}\r\n${body}`);
      return reply;
    },
    close: () => socket.destroy(),
  };
}

export async function webSocketClient(origin: string, token: string): Promise<Client> {
  const socket = new WebSocket(`${origin.replace('http', 'ws')}/v1/ws`, {
    headers: { authorization: `Bearer ${token}` },
    perMessageDeflate: false,
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  let answer: ((body: string) => void) | undefined;
  socket.on('message', data => answer?.(data.toString()));
  return {
    ask(body) {
      const reply = new Promise<string>(resolve => {
        answer = resolve;
      });
      socket.send(body);
      return reply;
    },
    close: () => socket.terminate(),
  };
}

/** Makes a client's next request from its last reply, and counts the steps of a reply. */
export interface Player {
  /** Path of the next HTTP request. */
  path: string;
  /** Headers that HTTP adds to the next request, each with its line break. */
  headers?: string;
  next(): string;
  /** @returns steps taken */
  take(reply: string): number;
}

export interface Measurement {
  readonly steps: number;
  readonly stepsPerSecond: number;
  readonly requestsPerSecond: number;
  /** Milliseconds per request. */
  readonly p50: number;
  readonly p99: number;
}

/** Lets every client play with one request in flight for this many seconds. */
export async function measure(
  clients: readonly (readonly [Client, Player])[],
  seconds: number,
): Promise<Measurement> {
  const end = performance.now() + seconds * 1000;
  const latencies: number[] = [];
  let steps = 0;
  await Promise.all(
    clients.map(async ([client, player]) => {
      for (let now = performance.now(); now < end; ) {
        const reply = await client.ask(player.next(), player.path, player.headers);
        const done = performance.now();
        steps += player.take(reply);
        latencies.push(done - now);
        now = done;
      }
    }),
  );
  latencies.sort((a, b) => a - b);
  const at = (share: number) =>
    latencies[Math.min(latencies.length - 1, Math.floor(latencies.length * share))];
  return {
    steps,
    stepsPerSecond: steps / seconds,
    requestsPerSecond: latencies.length / seconds,
    p50: at(0.5),
    p99: at(0.99),
  };
}
