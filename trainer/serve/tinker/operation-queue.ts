import { badRequest } from '../openai/errors.ts';

/** Numbers that an operation may be ahead of the first that is not over. */
const MAX_AHEAD = 4096;
/** Operations of a model that may wait or run. */
const MAX_OPEN = 256;

interface Operation {
  readonly ordered: boolean;
  run(): Promise<void>;
  reject(error: Error): void;
}

/**
 * The operations of a model, one at a time, in the order of their numbers. Numbers may arrive out of order, and more than once.
 * An operation that waits for a number that does not come fails in the end, and all numbers before it count as lost.
 */
export class OperationQueue {
  /** Requests with a gradient that is missing: they failed, were refused, or never came. */
  lost: { readonly seqId: number; readonly why: string }[] = [];
  readonly #gapMs: number;
  /** Operations that wait or run. */
  readonly #open = new Map<number, Operation>();
  readonly #finished = new Set<number>();
  /** All numbers up to this one are over. */
  #done = 0;
  #gap: NodeJS.Timeout | undefined;
  #running: { readonly seqId: number; readonly ended: Promise<void> } | null = null;
  #closed: Error | null = null;

  /** @param gapMs longest wait for a number that does not come */
  constructor(gapMs: number) {
    this.#gapMs = gapMs;
  }

  /**
   * Runs an operation when it is its turn.
   * @param seqId its number: 1 and on for each model
   * @param ordered false: it runs as it arrives, before smaller numbers that have not come yet
   * @param learns true where it adds a gradient
   * @throws ApiError 400, at once, for a number that was used or is out of range
   */
  run<T>(seqId: number, ordered: boolean, work: () => Promise<T>, learns = false): Promise<T> {
    this.check(seqId);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const failed = (error: Error) => {
      if (learns) this.#lose(seqId, error.message);
      reject(error);
    };
    this.#open.set(seqId, { ordered, run: () => work().then(resolve, failed), reject });
    this.#next();
    return promise;
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
   * Counts the number of a request that was refused at once, so that others do not wait for it.
   * @param learns true where a gradient is missing now
   */
  refuse(seqId: number, why: string, learns: boolean): void {
    const isNear = seqId >= 1 && seqId <= this.#done + MAX_AHEAD;
    if (!isNear || this.#isUsed(seqId)) return;
    if (learns) this.#lose(seqId, why);
    this.#finish(seqId);
  }

  /** Refuses what waits, and lets what runs end. */
  async close(reason: string): Promise<void> {
    const closed = new Error(reason);
    this.#closed = closed;
    clearTimeout(this.#gap);
    for (const [seqId, { reject }] of this.#open) if (seqId !== this.#running?.seqId) reject(closed);
    await this.#running?.ended;
  }

  #isUsed(seqId: number): boolean {
    return seqId <= this.#done || this.#finished.has(seqId) || this.#open.has(seqId);
  }

  /** Starts the operation with the smallest number that may run. */
  #next(): void {
    if (this.#running || this.#closed || this.#open.size === 0) return;
    clearTimeout(this.#gap);
    const seqId = Math.min(...this.#open.keys());
    const { ordered, run } = this.#open.get(seqId)!;
    if (ordered && seqId !== this.#done + 1) {
      this.#gap = setTimeout(() => this.#giveUp(seqId), this.#gapMs).unref();
      return;
    }
    const ended = run().then(() => {
      this.#running = null;
      this.#finish(seqId);
    });
    this.#running = { seqId, ended };
  }

  /** Fails an operation that waited too long, and counts the numbers before it as lost. */
  #giveUp(seqId: number): void {
    const waited = `seq_id ${seqId} waited ${this.#gapMs / 1000} s for ${this.#done + 1}`;
    this.#open.get(seqId)!.reject(badRequest(`${waited}, which never came`, 'seq_id'));
    for (let lost = this.#done + 1; lost < seqId; lost++) {
      if (!this.#finished.delete(lost)) this.#lose(lost, 'it never came');
    }
    this.#lose(seqId, 'it waited for a smaller number that never came');
    this.#done = seqId - 1;
    this.#finish(seqId);
  }

  #lose(seqId: number, why: string): void {
    this.lost.push({ seqId, why });
  }

  #finish(seqId: number): void {
    this.#open.delete(seqId);
    this.#finished.add(seqId);
    while (this.#finished.delete(this.#done + 1)) this.#done++;
    this.#next();
  }
}
