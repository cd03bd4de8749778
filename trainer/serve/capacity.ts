import { ApiError } from './openai/errors.ts';

/** When a client that was refused may try again, in seconds. */
const RETRY_AFTER_S = 1;

/** A limit of what is in use at once. */
export class Budget {
  readonly max: number;
  readonly #refusal: (used: number) => string;
  readonly #whole: Budget | undefined;
  #used = 0;
  #refused = 0;

  /**
   * @param refusal says what is in use when that is too much
   * @param whole budget that this one is a part of
   */
  constructor(max: number, refusal: (used: number) => string, whole?: Budget) {
    this.max = max;
    this.#refusal = refusal;
    this.#whole = whole;
  }

  get used(): number {
    return this.#used;
  }

  /** Times that nothing was left. */
  get refused(): number {
    return this.#refused;
  }

  /** @returns gives it back. @throws ApiError 429 */
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
