/** Does something again and again, a pause after it is done, while the page can be seen. */
export class Poll {
  readonly #pauseMs: number;
  readonly #work: () => Promise<void>;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #run = 0;

  constructor(pauseMs: number, work: () => Promise<void>) {
    this.#pauseMs = pauseMs;
    this.#work = work;
  }

  /** Does it now, and from now on. */
  start(): void {
    this.stop();
    this.#next(++this.#run);
  }

  stop(): void {
    this.#run++;
    clearTimeout(this.#timer);
  }

  async #next(run: number): Promise<void> {
    if (!document.hidden) await this.#work();
    if (run === this.#run) this.#timer = setTimeout(() => this.#next(run), this.#pauseMs);
  }
}
