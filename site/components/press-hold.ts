/**
 * Holds changes back while a pointer is pressed on an element: what moves or goes away between press and release gets no
 * click.
 */
export class PressHold {
  #pressed = false;
  #waiting: (() => void) | undefined;

  constructor(element: HTMLElement) {
    element.addEventListener('pointerdown', () => {
      this.#pressed = true;
    });
    for (const end of ['pointerup', 'pointercancel'] as const) {
      // The click follows the release in the same task.
      addEventListener(end, () => this.#pressed && setTimeout(() => this.#release()));
    }
  }

  /** Makes a change now, or when the pointer is released; of several that wait the last one alone. */
  change(make: () => void): void {
    if (this.#pressed) this.#waiting = make;
    else make();
  }

  #release(): void {
    this.#pressed = false;
    const make = this.#waiting;
    this.#waiting = undefined;
    make?.();
  }
}
