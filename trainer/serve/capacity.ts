import { ApiError } from './openai/errors.ts';

/** Seconds after which a rejected client may try again. */
const RETRY_AFTER_S = 1;

/** A limit of concurrent use. */
export class Budget {
  readonly max: number;
  readonly #refusal: (used: number) => string;
  readonly #whole: Budget | undefined;
  #used = 0;
  #refused = 0;

  /**
   * @param refusal message when too much is in use
   * @param whole budget that contains this one
   */
  constructor(max: number, refusal: (used: number) => string, whole?: Budget) {
    this.max = max;
    this.#refusal = refusal;
    this.#whole = whole;
  }

  get used(): number {
    return this.#used;
  }

  /** Number of rejected requests. */
  get refused(): number {
    return this.#refused;
  }

  /**
   * @returns a function that gives it back.
   * @throws ApiError 429
   */
  take(amount = 1): () => void {
    if (this.#used + amount > this.max) {
      this.#refused++;
      const details = { code: 'rate_limit_exceeded', retryAfterS: RETRY_AFTER_S };
      throw new ApiError(429, this.#refusal(this.#used), details);
    }
    const giveBack = this.#whole?.take(amount);
    this.#used += amount;
    let left = amount;
    return () => {
      this.#used -= left;
      left = 0;
      giveBack?.();
    };
  }
}
