import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import { Problem } from '../problems.ts';
import { scheduler } from '../scheduling/fair-scheduler.ts';

/** Operations that may wait for the one that runs. */
const MAX_QUEUE_LENGTH = 256;
const RETRY_AFTER_SECONDS = 1;

/** Runs operations on a session one after the other. The session inherits it, so that a step passes no other object. */
export abstract class OperationQueue {
  abstract readonly id: string;
  closed = false;
  #tail: Promise<void> | undefined;
  #waiting = 0;

  /** Called when nothing runs or waits any more. */
  protected abstract rested(): void;

  get busy(): boolean {
    return this.#tail !== undefined;
  }

  /** Operations that wait for another one. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Resolves when nothing runs or waits any more of what was there when it was called; undefined where nothing does. */
  get underWay(): Promise<void> | undefined {
    return this.#tail;
  }

  /** @throws Problem `session_closed` */
  protected requireOpen(): void {
    if (this.closed) throw new Problem('session_closed', `session ${this.id} was closed`);
  }

  /**
   * Runs a handler when everything that came before it is done; at once where nothing is running.
   * @throws Problem `too_many_requests` when the queue is full
   */
  exclusive<C, T>(handle: (queue: this, context: C) => MaybePromise<T>, context: C): MaybePromise<T> {
    if (this.#tail) return this.#afterwards(this.#tail, handle, context);
    const result = handle(this, context);
    if (result instanceof Promise) this.#hold(result);
    return result;
  }

  #afterwards<C, T>(
    tail: Promise<void>,
    handle: (queue: this, context: C) => MaybePromise<T>,
    context: C,
  ): Promise<T> {
    if (this.#waiting >= MAX_QUEUE_LENGTH) {
      throw new Problem(
        'too_many_requests',
        `session ${this.id} has ${MAX_QUEUE_LENGTH} operations waiting, the most it may have`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
    this.#waiting++;
    const turn = (): MaybePromise<T> => {
      this.#waiting--;
      this.requireOpen();
      return handle(this, context);
    };
    const result = tail.then(scheduler.keep(turn));
    this.#hold(result);
    return result;
  }

  #hold(result: Promise<unknown>): void {
    const done = () => {
      if (this.#tail !== settled) return;
      this.#tail = undefined;
      this.rested();
    };
    const settled: Promise<void> = result.then(done, done);
    this.#tail = settled;
  }
}
