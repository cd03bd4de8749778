import { Queue } from './queue.ts';

/** Lets so much work be under way at once that is done in other threads; clients take turns with what waits. */
export class Slots {
  readonly #most: number;
  #taken = 0;
  /** By client; the one that is first has the next turn. */
  readonly #waiting = new Map<string, Queue<() => void>>();

  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves when there is a slot; {@link release} gives it back. */
  take(client: string): Promise<void> {
    if (this.#taken < this.#most) {
      this.#taken++;
      return Promise.resolve();
    }
    const queue = this.#waiting.get(client) ?? new Queue();
    this.#waiting.set(client, queue);
    return new Promise(resolve => queue.push(resolve));
  }

  /** Gives a slot to who waits, or back. */
  release(): void {
    const [first] = this.#waiting;
    if (!first) {
      this.#taken--;
      return;
    }
    const [client, queue] = first;
    const next = queue.shift()!;
    this.#waiting.delete(client);
    if (queue.length > 0) this.#waiting.set(client, queue);
    next();
  }
}
