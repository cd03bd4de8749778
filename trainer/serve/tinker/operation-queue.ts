import { badRequest } from '../openai/errors.ts';
import { Submissions } from './submissions.ts';

/** Numbers of operations that are remembered, for those that are submitted again. */
const MAX_REMEMBERED = 4096;
/** Operations of a model that may wait. */
const MAX_WAITING = 256;

/** Settings of an operation's place among the others of its model. */
export interface Submission {
  /** Its number: 1 and on for each model. */
  readonly seqId: number;
  /** Hash of its content: what is submitted again under its number is the same. */
  readonly content: string;
  /** False: it runs as it arrives, before smaller numbers that have not come yet. */
  readonly ordered: boolean;
}

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
  readonly #known = new Submissions<number, string>('seq_id', 'request', MAX_REMEMBERED);
  readonly #finished = new Set<number>();
  readonly #waiting = new Map<number, Operation>();
  readonly #gapMs: number;
  readonly #onLost: (seqId: number, why: string) => void;
  #gap: NodeJS.Timeout | undefined;
  /** All numbers up to this one are over. */
  #done = 0;
  #running: Promise<void> | null = null;
  #closed: Error | null = null;

  /**
   * @param gapMs longest wait for a number that does not come
   * @param onLost called with each number that was refused or never came, where a gradient may be missing
   */
  constructor(gapMs: number, onLost: (seqId: number, why: string) => void) {
    this.#gapMs = gapMs;
    this.#onLost = onLost;
  }

  /**
   * Takes an operation.
   * @param keep stores the promise of its result under a request id
   * @returns the request id, of the first submission where it comes again
   * @throws ApiError 400 where the number was used for something else, or is out of range
   */
  submit<T>(
    { seqId, content, ordered }: Submission,
    work: () => Promise<T>,
    keep: (result: Promise<T>) => string,
  ): string {
    if (this.#closed) throw badRequest(this.#closed.message, 'model_id');
    if (seqId < 1) throw badRequest(`seq_id is ${seqId}; the first request of a model has 1`, 'seq_id');
    return this.#known.once(seqId, content, () => {
      if (this.#isOver(seqId)) throw this.#known.usedBefore(seqId);
      const waiting = this.#waiting.size;
      if (waiting >= MAX_WAITING || seqId > this.#done + MAX_REMEMBERED) {
        const state = `${waiting} requests wait, next is ${this.#done + 1}`;
        throw badRequest(`seq_id ${seqId} is too far ahead: ${state}`, 'seq_id');
      }
      const { promise, resolve, reject } = Promise.withResolvers<T>();
      const requestId = keep(promise);
      const run = () => work().then(resolve, reject);
      this.#waiting.set(seqId, { number: seqId, ordered, run, reject });
      this.#next();
      return requestId;
    });
  }

  /**
   * Counts the number of a request that was refused at once, so that others do not wait for it.
   * @param lost true where a gradient is missing now
   */
  refuse(seqId: number, why: string, lost: boolean): void {
    const far = !(seqId >= 1 && seqId <= this.#done + MAX_REMEMBERED);
    if (far || this.#known.get(seqId) !== undefined || this.#isOver(seqId)) return;
    if (lost) this.#onLost(seqId, why);
    this.#finish(seqId);
  }

  /** Refuses what waits, and lets what runs end. */
  async close(reason: string): Promise<void> {
    this.#closed = new Error(reason);
    clearTimeout(this.#gap);
    for (const operation of this.#waiting.values()) operation.reject(this.#closed);
    this.#waiting.clear();
    await this.#running;
  }

  #isOver(seqId: number): boolean {
    return seqId <= this.#done || this.#finished.has(seqId);
  }

  /** Starts the operation with the smallest number that may run. */
  #next(): void {
    if (this.#running !== null || this.#closed) return;
    clearTimeout(this.#gap);
    const [first] = [...this.#waiting.values()].sort((a, b) => a.number - b.number);
    if (first === undefined) return;
    if (first.ordered && first.number !== this.#done + 1) {
      this.#gap = setTimeout(() => this.#giveUp(first), this.#gapMs).unref();
      return;
    }
    this.#waiting.delete(first.number);
    this.#running = first.run().then(() => {
      this.#running = null;
      this.#finish(first.number);
    });
  }

  /** Fails an operation that waited too long, and counts the numbers before it as lost. */
  #giveUp({ number, reject }: Operation): void {
    const missing = this.#done + 1;
    for (let lost = missing; lost < number; lost++) {
      if (!this.#finished.delete(lost)) this.#onLost(lost, 'it never came');
    }
    this.#done = number - 1;
    this.#waiting.delete(number);
    const waited = `seq_id ${number} waited ${this.#gapMs / 1000} s for ${missing}`;
    reject(badRequest(`${waited}, which never came`, 'seq_id'));
    this.#onLost(number, 'it waited for a smaller number that never came');
    this.#finish(number);
  }

  #finish(seqId: number): void {
    this.#finished.add(seqId);
    while (this.#finished.delete(this.#done + 1)) this.#done++;
    this.#next();
  }
}
