const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;

/** Retries after a delay that doubles with each consecutive failure. */
export class RetryTimer {
  readonly #attempt: () => void;
  #delayMs = FIRST_DELAY_MS;
  #timer: NodeJS.Timeout | undefined;

  constructor(attempt: () => void) {
    this.#attempt = attempt;
  }

  /** True if an attempt is scheduled. */
  get pending(): boolean {
    return this.#timer !== undefined;
  }

  /** Schedules the next attempt, unless one is scheduled. */
  failed(): void {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#attempt();
    }, this.#delayMs).unref();
    this.#delayMs = Math.min(2 * this.#delayMs, MAX_DELAY_MS);
  }

  succeeded(): void {
    this.stop();
    this.#delayMs = FIRST_DELAY_MS;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
