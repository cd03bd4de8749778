/** State of the server: it answers, it answers but shuts down, or it does not answer. */
export type ConnectionState = 'connected' | 'draining' | 'away';

const RETRY_MS = 2000;
/** Milliseconds between checks of the server by an idle page. */
const HEARTBEAT_MS = 10_000;

/** Tracks whether the server answers; dispatches `change` with every new state. */
export class Connection extends EventTarget {
  readonly #probe: () => Promise<ConnectionState>;
  #state: ConnectionState = 'connected';
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param probe asks the server; rejects when there is no answer */
  constructor(probe: () => Promise<ConnectionState>) {
    super();
    this.#probe = probe;
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.#ask();
    });
    this.#plan();
  }

  get state(): ConnectionState {
    return this.#state;
  }

  /** A request succeeded. */
  answered(): void {
    if (this.#state === 'away') this.#ask();
  }

  /** A request got no answer. */
  lost(): void {
    this.#become('away');
    this.#plan();
  }

  async #ask(): Promise<void> {
    let state: ConnectionState;
    try {
      state = await this.#probe();
    } catch {
      state = 'away';
    }
    this.#become(state);
    this.#plan();
  }

  #plan(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => (document.hidden ? this.#plan() : this.#ask()),
      this.#state === 'connected' ? HEARTBEAT_MS : RETRY_MS,
    );
  }

  #become(state: ConnectionState): void {
    if (state === this.#state) return;
    this.#state = state;
    this.dispatchEvent(new Event('change'));
  }
}
