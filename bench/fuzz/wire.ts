import { once } from 'node:events';
import { Agent, type IncomingMessage, request as send } from 'node:http';
import { connect } from 'node:net';
import { decode, encode } from '@msgpack/msgpack';
import { WebSocket } from 'ws';
import type { Bytes } from './values.ts';

/** An answer over HTTP. */
export interface Answer {
  readonly status: number;
  readonly headers: { readonly [name: string]: string };
  readonly body: Buffer;
}

/** What came back for the frames of a socket. */
export interface SocketAnswer {
  readonly replies: readonly { readonly [key: string]: unknown }[];
  /** Why it was closed before everything was answered. */
  readonly closed: string | undefined;
}

const PATIENCE_MS = 60_000;
/** Deeper than any value is made; what is too deep is the server's to say. */
const DEEPEST = 1000;

export const bytesOf = ({ text, encoding }: Bytes): Buffer => Buffer.from(text, encoding);

/** Talks to one server, and waits for no answer for ever. */
export class ServerWire {
  readonly #origin: URL;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(origin: string) {
    this.#origin = new URL(origin);
  }

  close(): void {
    this.#agent.destroy();
  }

  /** @throws Error when there is no answer */
  async ask(
    method: string,
    path: string,
    headers: { readonly [name: string]: string } = {},
    body?: Buffer,
  ): Promise<Answer> {
    const sent = send({
      host: this.#origin.hostname,
      port: this.#origin.port,
      agent: this.#agent,
      method,
      path,
      headers: body === undefined ? headers : { ...headers, 'content-length': String(body.length) },
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
    sent.end(body);
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    const pieces: Buffer[] = [];
    for await (const piece of response) pieces.push(piece as Buffer);
    return {
      status: response.statusCode ?? 0,
      headers: response.headers as { [name: string]: string },
      body: Buffer.concat(pieces),
    };
  }

  /**
   * Sends bytes on a connection of their own and reads until the server hangs up or has answered once.
   * @param cut hangs up after sending
   * @throws Error when nothing comes
   */
  async pour(bytes: Buffer, cut: boolean): Promise<Buffer> {
    const socket = connect({ host: this.#origin.hostname, port: Number(this.#origin.port) });
    const pieces: Buffer[] = [];
    socket.on('data', piece => pieces.push(piece));
    socket.on('error', () => undefined);
    const closed = new Promise<void>((resolve, reject) => {
      socket.on('close', () => resolve());
      socket.setTimeout(PATIENCE_MS, () => {
        socket.destroy();
        reject(new Error(`no answer within ${PATIENCE_MS} ms, and the connection stays open`));
      });
    });
    socket.write(bytes);
    if (cut) socket.end();
    await closed;
    return Buffer.concat(pieces);
  }

  /** Sends frames at once on a socket of their own and waits for as many replies. */
  async exchange(
    protocol: string,
    frames: readonly ({ readonly value: unknown } | { readonly bytes: Bytes; readonly binary: boolean })[],
    headers: { readonly [name: string]: string },
  ): Promise<SocketAnswer> {
    const url = `${this.#origin.protocol.replace('http', 'ws')}//${this.#origin.host}/v1/ws`;
    const socket = new WebSocket(url, protocol, { headers, perMessageDeflate: false });
    socket.on('error', () => undefined);
    const packed = protocol === 'ragen.msgpack';
    const replies: { [key: string]: unknown }[] = [];
    try {
      await once(socket, 'open', { signal: AbortSignal.timeout(PATIENCE_MS) });
      const closed = await new Promise<string | undefined>(resolve => {
        const timer = setTimeout(resolve, PATIENCE_MS, `no reply within ${PATIENCE_MS} ms`);
        const done = (why: string | undefined) => {
          clearTimeout(timer);
          resolve(why);
        };
        socket.on('message', data => {
          replies.push(
            (packed ? decode(data as Buffer) : JSON.parse(String(data))) as (typeof replies)[number],
          );
          if (replies.length === frames.length) done(undefined);
        });
        socket.on('close', (code, reason) => done(`closed with ${code} ${reason}`));
        for (const frame of frames) {
          if ('bytes' in frame) socket.send(bytesOf(frame.bytes), { binary: frame.binary });
          else
            socket.send(
              packed
                ? encode(frame.value, { ignoreUndefined: true, maxDepth: DEEPEST })
                : JSON.stringify(frame.value),
            );
        }
      });
      return { replies, closed };
    } finally {
      socket.terminate();
    }
  }
}

const HEADER_END = '\r\n\r\n';
const CONTINUE = 100;

/** The first final answer among the bytes of a connection; undefined where there is none. */
export function answerIn(bytes: Buffer): Answer | undefined {
  const end = bytes.indexOf(HEADER_END);
  if (end < 0) return undefined;
  const [first, ...lines] = bytes.toString('latin1', 0, end).split('\r\n');
  const status = Number(/^HTTP\/1\.[01] (\d{3})/.exec(first)?.[1]);
  const rest = bytes.subarray(end + HEADER_END.length);
  if (status === CONTINUE) return answerIn(rest);
  const headers = Object.fromEntries(
    lines.map(line => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
    }),
  );
  const length = headers['content-length'];
  return { status, headers, body: length === undefined ? rest : rest.subarray(0, Number(length)) };
}
