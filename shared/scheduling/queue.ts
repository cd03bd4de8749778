/** Number of taken items after which the array is compacted. */
const MAX_TAKEN = 1024;
/** Capacity that an empty queue keeps. */
const MAX_KEPT = 64;

/** A first-in, first-out queue; returned items go to the front. */
export class Queue<T> {
  /** An empty queue reuses its array, so that a short queue allocates nothing. */
  #items: (T | undefined)[] = [];
  #head = 0;
  #tail = 0;
  length = 0;

  /** The next item; undefined when the queue is empty. */
  get first(): T | undefined {
    return this.#items[this.#head];
  }

  push(item: T): void {
    this.#items[this.#tail++] = item;
    this.length++;
  }

  unshift(item: T): void {
    this.length++;
    if (this.#head > 0) {
      this.#items[--this.#head] = item;
    } else {
      this.#items.unshift(item);
      this.#tail++;
    }
  }

  shift(): T | undefined {
    if (this.length === 0) return undefined;
    this.length--;
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head > MAX_TAKEN) {
      this.#items = this.#items.slice(this.#head, this.#tail);
      this.#tail -= this.#head;
      this.#head = 0;
    } else if (this.#head === this.#tail) {
      this.#head = 0;
      this.#tail = 0;
      if (this.#items.length > MAX_KEPT) this.#items = [];
    }
    return item;
  }
}
