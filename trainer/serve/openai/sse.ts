import { once } from 'node:events';
import type { ServerResponse } from 'node:http';

/** Milliseconds without reading after which a client counts as gone. */
const STALL_MS = 60_000;
const HEADERS = {
  'content-type': 'text/event-stream; charset=utf-8',
  'cache-control': 'no-cache, no-transform',
  'x-accel-buffering': 'no',
};

/**
 * Writes server-sent events. A client that reads slowly is waited for ({@link drained}), so that what waits for it is never
 * more than the connection's own buffer: the writer puts together what came in the meantime.
 */
export class EventStream {
  readonly #response: ServerResponse;

  /** @param headers of the reply besides those of an event stream */
  constructor(response: ServerResponse, headers: Readonly<Record<string, string>>) {
    this.#response = response;
    response.writeHead(200, { ...headers, ...HEADERS });
    response.flushHeaders();
  }

  /**
   * Resolves when the client has read on.
   * @throws when the signal is aborted, or the client has read nothing for a minute; its connection is closed then
   */
  async drained(signal: AbortSignal): Promise<void> {
    if (!this.#response.writableNeedDrain) return;
    try {
      await once(this.#response, 'drain', {
        signal: AbortSignal.any([signal, AbortSignal.timeout(STALL_MS)]),
      });
    } catch (error) {
      this.#response.destroy();
      throw error;
    }
  }

  /** @param json without line breaks */
  event(json: string): void {
    this.#response.write(`data: ${json}\n\n`);
  }

  end(): void {
    this.#response.end('data: [DONE]\n\n');
  }
}
