/** Runs one piece of work after the other, in the order in which they were asked for; one that fails delays none. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();

  run<T>(work: () => T | Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }

  /** Resolves when all that was requested until now is over. */
  get idle(): Promise<unknown> {
    return this.#last;
  }
}
