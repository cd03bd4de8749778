import { ApiError } from './openai/errors.ts';

/** When a client that was refused may try again, in seconds. */
const RETRY_AFTER_S = 1;

/** A limit of what is in use at once. */
export class Budget {
  readonly max: number;
  readonly #refusal: (used: number) => string;
  readonly #whole: Budget | undefined;
  #used = 0;

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

  /** @returns gives it back. @throws ApiError 429 */
  take(amount = 1): () => void {
    if (this.#used + amount > this.max) {
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

/** Limits of what a server has open at once: responses, and bytes of request bodies. */
export class Capacity {
  readonly maxStreams: number;
  readonly #streams: Budget;
  readonly #bodyBytes: Budget;
  #refused = 0;

  constructor(maxStreams: number, maxBodyBytes: number) {
    const refusal = (why: string): string => {
      this.#refused++;
      return `the server is at its capacity: ${why}; try again later`;
    };
    this.maxStreams = maxStreams;
    this.#streams = new Budget(maxStreams, used =>
      refusal(`${used} of ${maxStreams} responses are being sampled`),
    );
    this.#bodyBytes = new Budget(maxBodyBytes, () => refusal('the bodies of open requests fill the memory'));
  }

  get streams(): number {
    return this.#streams.used;
  }

  /** Requests refused so far. */
  get refused(): number {
    return this.#refused;
  }

  /** Takes places for responses. @returns gives them back. @throws ApiError 429 */
  enter(streams: number): () => void {
    return this.#streams.take(streams);
  }

  /** Does work that takes places while it lasts. @throws ApiError 429 */
  async during<T>(streams: number, work: () => Promise<T>): Promise<T> {
    const leave = this.enter(streams);
    try {
      return await work();
    } finally {
      leave();
    }
  }

  /** Takes room for a request's body. @returns gives it back. @throws ApiError 429 */
  takeBody(bytes: number): () => void {
    return this.#bodyBytes.take(bytes);
  }
}
