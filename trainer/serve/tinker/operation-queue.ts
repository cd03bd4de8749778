import { badRequest } from '../openai/errors.ts';

/** Numbers of operations that are remembered, for those that are submitted again. */
const MAX_REMEMBERED = 4096;
/** Operations of a model that may wait. */
const MAX_WAITING = 256;

interface Operation {
  readonly number: number;
  /** Waits for all smaller numbers. */
  readonly ordered: boolean;
  run(): Promise<void>;
  reject(error: Error): void;
}

/** Settings of an operation's place among the others of its model. */
export interface Submission {
  /** Its number: 1 and on for each model. */
  readonly seqId: number;
  /** Hash of its content: what is submitted again under its number is the same. */
  readonly fingerprint: string;
  /** False: it runs as it arrives, before smaller numbers that have not come yet. */
  readonly ordered: boolean;
}

/**
 * The operations of a model, one at a time, in the order of their numbers. Numbers may arrive out of order, and more than once.
 * An operation that waits for a number that does not come fails in the end, and all numbers before it count as lost.
 */
export class OperationQueue {
  readonly #known = new Map<number, { readonly fingerprint: string; readonly requestId: string }>();
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
    { seqId, fingerprint, ordered }: Submission,
    work: () => Promise<T>,
    keep: (result: Promise<T>) => string,
  ): string {
    if (this.#closed) throw badRequest(this.#closed.message, 'model_id');
    if (seqId < 1) throw badRequest(`seq_id is ${seqId}; the first request of a model has 1`, 'seq_id');
    const known = this.#known.get(seqId);
    if (known?.fingerprint === fingerprint) return known.requestId;
    if (known !== undefined || this.#isOver(seqId)) {
      throw badRequest(
        `seq_id ${seqId} was used for another request: number requests 1, 2, 3 and so on`,
        'seq_id',
      );
    }
    if (this.#waiting.size >= MAX_WAITING || seqId > this.#done + MAX_REMEMBERED) {
      throw badRequest(
        `seq_id ${seqId} is too far ahead: ${this.#waiting.size} requests wait, next is ${this.#done + 1}`,
        'seq_id',
      );
    }
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const requestId = keep(promise);
    this.#waiting.set(seqId, {
      number: seqId,
      ordered,
      run: () => work().then(resolve, reject),
      reject,
    });
    this.#known.set(seqId, { fingerprint, requestId });
    if (this.#known.size > MAX_REMEMBERED) this.#known.delete(this.#known.keys().next().value!);
    this.#next();
    return requestId;
  }

  /**
   * Counts the number of a request that was refused at once, so that others do not wait for it.
   * @param lost true where a gradient is missing now
   */
  refuse(seqId: number, why: string, lost: boolean): void {
    const far = !(seqId >= 1 && seqId <= this.#done + MAX_REMEMBERED);
    if (far || this.#known.has(seqId) || this.#isOver(seqId)) return;
    if (lost) this.#onLost(seqId, why);
    this.#finish(seqId);
    this.#next();
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
    const first = [...this.#waiting.values()].sort((a, b) => a.number - b.number)[0];
    if (first === undefined) return;
    if (first.ordered && first.number !== this.#done + 1) {
      this.#gap = setTimeout(() => this.#giveUp(first), this.#gapMs).unref();
      return;
    }
    this.#waiting.delete(first.number);
    this.#running = first.run().then(() => {
      this.#running = null;
      this.#finish(first.number);
      this.#next();
    });
  }

  #giveUp(operation: Operation): void {
    for (let lost = this.#done + 1; lost < operation.number; lost++) {
      if (!this.#finished.has(lost)) this.#onLost(lost, 'it never came');
    }
    const missing = this.#done + 1;
    this.#done = operation.number - 1;
    for (const number of this.#finished) if (number <= this.#done) this.#finished.delete(number);
    this.#waiting.delete(operation.number);
    operation.reject(
      badRequest(
        `seq_id ${operation.number} waited ${this.#gapMs / 1000} s for ${missing}, which never came`,
        'seq_id',
      ),
    );
    this.#onLost(operation.number, 'it waited for a smaller number that never came');
    this.#finish(operation.number);
    this.#next();
  }

  #finish(seqId: number): void {
    this.#finished.add(seqId);
    while (this.#finished.delete(this.#done + 1)) this.#done++;
  }
}
