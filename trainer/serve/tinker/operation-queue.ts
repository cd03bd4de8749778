import { badRequest } from '../openai/errors.ts';

/** Numbers that an operation may be ahead of the first that is not over. */
const MAX_AHEAD = 4096;
/** Operations of a model that may wait or run. */
const MAX_OPEN = 256;

interface Operation {
  readonly number: number;
  readonly ordered: boolean;
  run(): Promise<void>;
  reject(error: Error): void;
}

/**
 * The operations of a model, one at a time, in the order of their numbers. Numbers may arrive out of order, and more than once.
 * An operation that waits for a number that does not come fails in the end, and all numbers before it count as lost.
 */
export class OperationQueue {
  readonly #finished = new Set<number>();
  /** Operations that wait or run. */
  readonly #open = new Map<number, Operation>();
  readonly #gapMs: number;
  readonly #onLost: (seqId: number, why: string) => void;
  #gap: NodeJS.Timeout | undefined;
  /** All numbers up to this one are over. */
  #done = 0;
  #running: { readonly number: number; readonly ended: Promise<void> } | null = null;
  #closed: Error | null = null;

  /**
   * @param gapMs longest wait for a number that does not come
   * @param onLost called with each number that was refused or never came, where a gradient may be missing
   */
  constructor(gapMs: number, onLost: (seqId: number, why: string) => void) {
    this.#gapMs = gapMs;
    this.#onLost = onLost;
  }

  /** @throws ApiError 400 for a number that was used, or is out of range */
  check(seqId: number): void {
    if (this.#closed) throw badRequest(this.#closed.message, 'model_id');
    if (seqId < 1) throw badRequest(`seq_id is ${seqId}; the first request of a model has 1`, 'seq_id');
    if (this.#isUsed(seqId)) {
      const fault = `seq_id ${seqId} was used for another request`;
      throw badRequest(`${fault}: number requests 1, 2, 3 and so on`, 'seq_id');
    }
    // What others wait for is taken at any time.
    const room = this.#open.size < MAX_OPEN || seqId < Math.max(...this.#open.keys());
    if (room && seqId <= this.#done + MAX_AHEAD) return;
    const state = `${this.#open.size} requests wait, next is ${this.#done + 1}`;
    throw badRequest(`seq_id ${seqId} is too far ahead: ${state}`, 'seq_id');
  }

  /**
   * Runs an operation when it is its turn.
   * @param seqId its number: 1 and on for each model
   * @param ordered false: it runs as it arrives, before smaller numbers that have not come yet
   * @throws ApiError 400 as {@link check}
   */
  run<T>(seqId: number, ordered: boolean, work: () => Promise<T>): Promise<T> {
    this.check(seqId);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const run = () => work().then(resolve, reject);
    this.#open.set(seqId, { number: seqId, ordered, run, reject });
    this.#next();
    return promise;
  }

  /**
   * Counts the number of a request that was refused at once, so that others do not wait for it.
   * @param lost true where a gradient is missing now
   */
  refuse(seqId: number, why: string, lost: boolean): void {
    const far = !(seqId >= 1 && seqId <= this.#done + MAX_AHEAD);
    if (far || this.#isUsed(seqId)) return;
    if (lost) this.#onLost(seqId, why);
    this.#finish(seqId);
  }

  /** Refuses what waits, and lets what runs end. */
  async close(reason: string): Promise<void> {
    this.#closed = new Error(reason);
    clearTimeout(this.#gap);
    for (const { number, reject } of this.#open.values()) {
      if (number !== this.#running?.number) reject(this.#closed);
    }
    await this.#running?.ended;
  }

  #isUsed(seqId: number): boolean {
    return seqId <= this.#done || this.#finished.has(seqId) || this.#open.has(seqId);
  }

  /** Starts the operation with the smallest number that may run. */
  #next(): void {
    if (this.#running !== null || this.#closed) return;
    clearTimeout(this.#gap);
    const [first] = [...this.#open.values()].sort((a, b) => a.number - b.number);
    if (first === undefined) return;
    if (first.ordered && first.number !== this.#done + 1) {
      this.#gap = setTimeout(() => this.#giveUp(first), this.#gapMs).unref();
      return;
    }
    const ended = first.run().then(() => {
      this.#running = null;
      this.#finish(first.number);
    });
    this.#running = { number: first.number, ended };
  }

  /** Fails an operation that waited too long, and counts the numbers before it as lost. */
  #giveUp({ number, reject }: Operation): void {
    const missing = this.#done + 1;
    for (let lost = missing; lost < number; lost++) {
      if (!this.#finished.delete(lost)) this.#onLost(lost, 'it never came');
    }
    this.#done = number - 1;
    const waited = `seq_id ${number} waited ${this.#gapMs / 1000} s for ${missing}`;
    reject(badRequest(`${waited}, which never came`, 'seq_id'));
    this.#onLost(number, 'it waited for a smaller number that never came');
    this.#finish(number);
  }

  #finish(seqId: number): void {
    this.#open.delete(seqId);
    this.#finished.add(seqId);
    while (this.#finished.delete(this.#done + 1)) this.#done++;
    this.#next();
  }
}
