/**
 * Positions a page of the cache holds, and attention takes at once. Small, so that what a short sequence touches lies close
 * together: half-empty pages would leave most sets of a processor's cache unused.
 */
export const PAGE_POSITIONS = 16;

export interface PageTableOptions {
  readonly pageCount: number;
  /** Most pages one sequence can have. */
  readonly pagesPerSequence: number;
  /** Lists of pages by slot, `pagesPerSequence` each; page n stands there as `first` + n · `step`. */
  readonly lists: Int32Array | Float32Array;
  readonly first: number;
  readonly step: number;
}

/** Which pages of a cache belong to which slot, and which are free. Knows pages and slots, not sequences. */
export class PageTable {
  readonly pageCount: number;
  readonly pagesPerSequence: number;
  readonly lists: Int32Array | Float32Array;
  readonly #first: number;
  readonly #step: number;
  readonly #freePages: Uint32Array;
  #freePageCount: number;
  /** Of each page: slots that it belongs to. */
  readonly #owners: Uint16Array;
  /** Of each page: 1 once all its positions are computed, or will be before they are read. */
  readonly #filled: Uint8Array;

  constructor({ pageCount, pagesPerSequence, lists, first, step }: PageTableOptions) {
    this.pageCount = pageCount;
    this.pagesPerSequence = pagesPerSequence;
    this.lists = lists;
    this.#first = first;
    this.#step = step;
    this.#freePages = Uint32Array.from({ length: pageCount }, (_, n) => n).reverse();
    this.#freePageCount = pageCount;
    this.#owners = new Uint16Array(pageCount);
    this.#filled = new Uint8Array(pageCount);
  }

  get freePages(): number {
    return this.#freePageCount;
  }

  /** Gives slot `slot` pages `from` to `to` of its sequence. The caller has seen to it that they are free. */
  addPages(slot: number, from: number, to: number): void {
    const list = slot * this.pagesPerSequence;
    for (let page = from; page < to; page++) {
      const number = this.#freePages[--this.#freePageCount];
      this.#owners[number] = 1;
      this.#filled[number] = 0;
      this.lists[list + page] = this.#first + number * this.#step;
    }
  }

  /** Gives a slot without pages the first `count` of another, to be theirs in common. */
  sharePages(slot: number, other: number, count: number): void {
    for (let page = 0; page < count; page++) {
      this.#owners[this.#numberOf(other, page)]++;
      this.lists[slot * this.pagesPerSequence + page] = this.lists[other * this.pagesPerSequence + page];
    }
  }

  /** Takes the first `count` pages of a slot back; those that no other slot has are free then. */
  freeSlot(slot: number, count: number): void {
    for (let page = count - 1; page >= 0; page--) {
      const number = this.#numberOf(slot, page);
      if (--this.#owners[number] === 0) this.#freePages[this.#freePageCount++] = number;
    }
  }

  /** Whether a page of a slot holds all its positions, computed for this slot or another that shares it. */
  isFilled(slot: number, page: number): boolean {
    return this.#filled[this.#numberOf(slot, page)] === 1;
  }

  /** Pages `from` to `to` of a slot are computed in the coming tick at the latest. */
  markFilled(slot: number, from: number, to: number): void {
    for (let page = from; page < to; page++) this.#filled[this.#numberOf(slot, page)] = 1;
  }

  /** No page counts as filled any more. */
  clearFilled(): void {
    this.#filled.fill(0);
  }

  #numberOf(slot: number, page: number): number {
    const entry = this.lists[slot * this.pagesPerSequence + page];
    // Addresses beyond 2 GiB are negative in a signed list.
    return ((entry >>> 0) - this.#first) / this.#step;
  }
}
