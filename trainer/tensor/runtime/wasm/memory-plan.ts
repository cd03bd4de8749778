const FLOAT_BYTES = 4;
const CACHE_LINE_BYTES = 64;

/** Allocates places in a WebAssembly memory, each on a new cache line. */
export class MemoryPlan {
  #end: number;

  constructor(start = 0) {
    this.#end = start;
  }

  /** First byte after all allocated places. */
  get end(): number {
    return this.#end;
  }

  /** Address of `words` 32-bit words. */
  place(words: number): number {
    const start = this.#end;
    this.#end += Math.ceil((words * FLOAT_BYTES) / CACHE_LINE_BYTES) * CACHE_LINE_BYTES;
    return start;
  }
}
