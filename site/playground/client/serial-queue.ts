/** Does things one after the other, in the order in which they were asked for; one that fails holds up none. */
export class SerialQueue {
  #last: Promise<unknown> = Promise.resolve();

  take<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#last.then(work);
    this.#last = done.catch(() => {});
    return done;
  }
}
