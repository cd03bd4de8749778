/** Calls back when it has run for so long, pauses not counted. */
export class Countdown {
  readonly #ms: number;
  readonly #over: () => void;
  #left: number;
  #startedAt = 0;
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;

  /** @param over called once, then again only after a {@link reset} */
  constructor(ms: number, over: () => void) {
    this.#ms = ms;
    this.#over = over;
    this.#left = ms;
  }

  run(): void {
    if (this.#timer || this.#isOver) return;
    this.#startedAt = performance.now();
    this.#timer = setTimeout(() => {
      this.#isOver = true;
      this.#over();
    }, this.#left);
  }

  pause(): void {
    if (!this.#timer) return;
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#left = Math.max(0, this.#left - (performance.now() - this.#startedAt));
  }

  /** Pauses it with its whole time left. */
  reset(): void {
    this.pause();
    this.#left = this.#ms;
    this.#isOver = false;
  }
}
