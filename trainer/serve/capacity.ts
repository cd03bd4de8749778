import { ApiError } from './openai/errors.ts';

/** When a client that was refused may try again, in seconds. */
const RETRY_AFTER_S = 1;

/** Limits of what a server has open at once: responses, and bytes of request bodies. */
export class Capacity {
  readonly maxStreams: number;
  readonly #maxBodyBytes: number;
  #streams = 0;
  #bodyBytes = 0;
  #refused = 0;

  constructor(maxStreams: number, maxBodyBytes: number) {
    this.maxStreams = maxStreams;
    this.#maxBodyBytes = maxBodyBytes;
  }

  get streams(): number {
    return this.#streams;
  }

  /** Requests refused so far. */
  get refused(): number {
    return this.#refused;
  }

  /** Takes places for responses. @returns gives them back. @throws ApiError 429 */
  enter(streams: number): () => void {
    if (this.#streams + streams > this.maxStreams) {
      throw this.#full(`${this.#streams} of ${this.maxStreams} responses are being sampled`);
    }
    this.#streams += streams;
    return once(() => {
      this.#streams -= streams;
    });
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
    if (this.#bodyBytes + bytes > this.#maxBodyBytes)
      throw this.#full('the bodies of open requests fill the memory');
    this.#bodyBytes += bytes;
    return once(() => {
      this.#bodyBytes -= bytes;
    });
  }

  #full(why: string): ApiError {
    this.#refused++;
    return new ApiError(429, `the server is at its capacity: ${why}; try again later`, {
      code: 'rate_limit_exceeded',
      retryAfterS: RETRY_AFTER_S,
    });
  }
}

function once(work: () => void): () => void {
  let done = false;
  return () => {
    if (done) return;
    done = true;
    work();
  };
}
