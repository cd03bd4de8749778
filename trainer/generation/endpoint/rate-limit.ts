/** Time as a rate limit sees it; a test's clock does not move unless it is moved. */
export interface Clock {
  now(): number;
  sleep(ms: number): Promise<void>;
}

const MINUTE_MS = 60_000;

/**
 * At most so much in any minute, as providers count: what was spent is remembered for a minute, and a request that would spend
 * more waits, first come first served. Something larger than the whole limit goes alone.
 */
export class RateLimit {
  readonly #perMinute: number;
  readonly #clock: Clock;
  readonly #spent: { readonly at: number; amount: number }[] = [];
  #turn: Promise<unknown> = Promise.resolve();

  /** @param perMinute infinite for no limit */
  constructor(perMinute: number, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /** Waits until `amount` may be spent, and spends it. Returns a way to say what it came to in the end. */
  take(amount: number): Promise<(actual: number) => void> {
    const taken = this.#turn.then(async () => {
      for (let wait = this.#wait(amount); wait > 0; wait = this.#wait(amount)) await this.#clock.sleep(wait);
      const entry = { at: this.#clock.now(), amount };
      this.#spent.push(entry);
      return (actual: number) => {
        entry.amount = actual;
      };
    });
    this.#turn = taken;
    return taken;
  }

  #wait(amount: number): number {
    const now = this.#clock.now();
    while (this.#spent.length > 0 && now - this.#spent[0].at >= MINUTE_MS) this.#spent.shift();
    const spent = this.#spent.reduce((sum, entry) => sum + entry.amount, 0);
    if (this.#spent.length === 0 || spent + amount <= this.#perMinute) return 0;
    return this.#spent[0].at + MINUTE_MS - now;
  }
}
