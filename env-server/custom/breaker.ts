/** Consecutive failures that open it. */
export const TRIP_AFTER = 5;
const FIRST_PAUSE_MS = 1000;
const MAX_PAUSE_MS = 60_000;

/**
 * A circuit breaker: after some failures nothing is tried for a while, then a single attempt decides. Each pause is
 * twice as long as the one before, until an attempt succeeds.
 */
export class CircuitBreaker {
  readonly #now: () => number;
  readonly #tripAfter: number;
  #failures = 0;
  #pauses = 0;
  #closedUntil = 0;
  #probing = false;

  /** @param now milliseconds of any monotonic clock */
  constructor(now: () => number, tripAfter = TRIP_AFTER) {
    this.#now = now;
    this.#tripAfter = tripAfter;
  }

  /** Milliseconds until the next attempt; 0 permits one, and the caller must then report its outcome. */
  enter(): number {
    if (this.#failures < this.#tripAfter) return 0;
    const wait = this.#closedUntil - this.#now();
    if (wait > 0) return wait;
    if (this.#probing) return FIRST_PAUSE_MS;
    this.#probing = true;
    return 0;
  }

  succeeded(): void {
    this.#failures = 0;
    this.#pauses = 0;
    this.#probing = false;
  }

  failed(): void {
    this.#failures++;
    this.#probing = false;
    // Calls that began before a pause and fail in it do not lengthen it.
    if (this.#failures < this.#tripAfter || this.#now() < this.#closedUntil) return;
    this.#closedUntil = this.#now() + Math.min(FIRST_PAUSE_MS * 2 ** this.#pauses, MAX_PAUSE_MS);
    this.#pauses++;
  }
}
