/** The values that were used last, so many at most; others are made again when they are wanted. */
export class Recent<V> {
  readonly #values = new Map<string, V>();
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  get(key: string, make: () => V): V {
    let value = this.#values.get(key);
    if (value === undefined) value = make();
    else this.#values.delete(key);
    this.#values.set(key, value);
    if (this.#values.size > this.#most) this.#values.delete(this.#values.keys().next().value!);
    return value;
  }

  forget(key: string): void {
    this.#values.delete(key);
  }
}
