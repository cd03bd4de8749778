import type {
  HttpConnections,
  HttpFailure,
  HttpReply,
  HttpSettings,
  Socket,
  SocketEvents,
  SocketOptions,
} from './platform.ts';

/** The client's platform in browsers, limited to what all of them have. Bundlers substitute it for `platform.ts`. */

/** A reply did not come in time. */
class Late extends Error {}

export function openHttp(origin: string, { replyTimeoutMs }: HttpSettings): HttpConnections {
  const closed = new AbortController();
  return {
    async request({ path, signal, ...request }): Promise<HttpReply> {
      const clock = AbortSignal.timeout(replyTimeoutMs);
      const signals = [clock, closed.signal, ...(signal ? [signal] : [])];
      try {
        const reply = await fetch(origin + path, { ...request, signal: AbortSignal.any(signals) });
        const text = await reply.text();
        return { status: reply.status, header: name => reply.headers.get(name) ?? undefined, text };
      } catch (error) {
        throw clock.aborted ? new Late('the reply is late', { cause: error }) : error;
      }
    },
    close: async () => closed.abort(),
  };
}

export function failureOf(error: unknown): HttpFailure {
  return error instanceof Late ? 'reply_timeout' : 'broken';
}

/** A browser sends no headers with a WebSocket, so the token is one of its subprotocols. */
export function openSocket(url: string, { protocol, token }: SocketOptions, on: SocketEvents): Socket {
  const protocols = token === undefined ? [protocol] : [protocol, `ragen.bearer.${base64Url(token)}`];
  const socket = new WebSocket(url, protocols);
  let ended = false;
  socket.addEventListener('open', on.open);
  socket.addEventListener('message', ({ data }) => on.message(String(data)));
  socket.addEventListener('error', () => on.error(new Error('the WebSocket failed')));
  socket.addEventListener('close', ({ code }) => {
    if (!ended) on.close(code);
  });
  return {
    send(text) {
      if (socket.readyState === WebSocket.OPEN) socket.send(text);
    },
    terminate() {
      ended = true;
      socket.close();
    },
  };
}

export function afterReading(work: () => void): void {
  setTimeout(work, 0);
}

export function repeat(work: () => void, ms: number): () => void {
  const timer = setInterval(work, ms);
  return () => clearInterval(timer);
}

/** `crypto.randomUUID` is missing on pages without TLS. */
export function randomName(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, byte => byte.toString(16).padStart(2, '0')).join('');
}

/** Pages have no variables. */
export const variable = (_name: string): string | undefined => undefined;

/** Pages keep no log. */
export function note(_record: object, _message: string): void {}

function base64Url(text: string): string {
  const bytes = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(bytes)
    .replaceAll('+', '-')
    .replaceAll('/', '_')
    .replace(/(?<!=)=+$/, '');
}
