/** Reports that a client waits for a server that is down, draining or full. */
export interface WaitEvents {
  readonly onWaiting?: (event: WaitEvent) => void;
  readonly onBack?: (event: { readonly server: string; readonly waitedMs: number }) => void;
}

export interface WaitEvent {
  readonly server: string;
  readonly error: Error;
  /** Since the server was found away. */
  readonly waitedMs: number;
}

/** Between two reports of the same wait. */
const REPORT_EVERY_MS = 1_000;

/**
 * Whether a server is away, as its requests find it. Hundreds of requests may wait at once; they are reported as one
 * wait, about once a second, and as one return.
 */
export class Availability {
  readonly #server: string;
  readonly #events: WaitEvents;
  #since: number | undefined;
  #reported = 0;

  constructor(server: string, events: WaitEvents) {
    this.#server = server;
    this.#events = events;
  }

  get away(): boolean {
    return this.#since !== undefined;
  }

  /** A request failed in a way that asks for waiting. Returns how long the server has been away, in milliseconds. */
  failed(error: Error): number {
    const now = performance.now();
    this.#since ??= now;
    const waitedMs = now - this.#since;
    if (waitedMs === 0 || now - this.#reported >= REPORT_EVERY_MS) {
      this.#reported = now;
      this.#events.onWaiting?.({ server: this.#server, error, waitedMs });
    }
    return waitedMs;
  }

  /** The server answered. */
  answered(): void {
    if (this.#since === undefined) return;
    const waitedMs = performance.now() - this.#since;
    this.#since = undefined;
    this.#events.onBack?.({ server: this.#server, waitedMs });
  }
}
