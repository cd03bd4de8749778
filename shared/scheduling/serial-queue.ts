/** Runs tasks one after another, in the order they were added; a failed task does not delay the others. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(work: () => T | Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }

  /** Resolves when all tasks added so far are done. */
  get idle(): Promise<unknown> {
    return this.#last;
  }
}
