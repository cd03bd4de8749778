/**
 * Positions in a block of the cache, and in one step of attention. Small, so that a short sequence's memory is close
 * together: half-empty blocks would leave most sets of a processor's cache unused.
 */
export const BLOCK_SIZE = 16;

export interface BlockTableOptions {
  readonly blockCount: number;
  /** Most blocks one sequence can have. */
  readonly blocksPerSequence: number;
  /** Lists of blocks by slot, `blocksPerSequence` each; an entry is `first` + n · `step` for block n. */
  readonly tables: Int32Array | Float32Array;
  readonly first: number;
  readonly step: number;
}

/** Assignment of a cache's blocks to slots, and the free blocks. Knows blocks and slots, not sequences. */
export class BlockTable {
  readonly blockCount: number;
  readonly blocksPerSequence: number;
  readonly tables: Int32Array | Float32Array;
  readonly #first: number;
  readonly #step: number;
  readonly #freeBlocks: Uint32Array;
  #freeBlockCount: number;
  /** Number of slots that each block belongs to. */
  readonly #owners: Uint16Array;
  /** 1 for each block with positions that are computed, or will be before they are read. */
  readonly #filled: Uint8Array;

  constructor({ blockCount, blocksPerSequence, tables, first, step }: BlockTableOptions) {
    this.blockCount = blockCount;
    this.blocksPerSequence = blocksPerSequence;
    this.tables = tables;
    this.#first = first;
    this.#step = step;
    this.#freeBlocks = Uint32Array.from({ length: blockCount }, (_, n) => n).reverse();
    this.#freeBlockCount = blockCount;
    this.#owners = new Uint16Array(blockCount);
    this.#filled = new Uint8Array(blockCount);
  }

  get freeBlocks(): number {
    return this.#freeBlockCount;
  }

  /** Assigns blocks `from` to `to` of its sequence to a slot. The caller makes sure that enough are free. */
  addBlocks(slot: number, from: number, to: number): void {
    const list = slot * this.blocksPerSequence;
    for (let block = from; block < to; block++) {
      const number = this.#freeBlocks[--this.#freeBlockCount];
      this.#owners[number] = 1;
      this.#filled[number] = 0;
      this.tables[list + block] = this.#first + number * this.#step;
    }
  }

  /** Shares the first `count` blocks of another slot with a slot without blocks. */
  shareBlocks(slot: number, other: number, count: number): void {
    for (let block = 0; block < count; block++) {
      this.#owners[this.#numberOf(other, block)]++;
      this.tables[slot * this.blocksPerSequence + block] =
        this.tables[other * this.blocksPerSequence + block];
    }
  }

  /** Takes back the first `count` blocks of a slot; blocks without another slot become free. */
  freeSlot(slot: number, count: number): void {
    for (let block = count - 1; block >= 0; block--) {
      const number = this.#numberOf(slot, block);
      if (--this.#owners[number] === 0) this.#freeBlocks[this.#freeBlockCount++] = number;
    }
  }

  /** True if a block of a slot has all its positions, computed for this slot or for another that shares it. */
  isFilled(slot: number, block: number): boolean {
    return this.#filled[this.#numberOf(slot, block)] === 1;
  }

  /** Marks blocks `from` to `to` of a slot: they are computed in the next tick at the latest. */
  markFilled(slot: number, from: number, to: number): void {
    for (let block = from; block < to; block++) this.#filled[this.#numberOf(slot, block)] = 1;
  }

  /** Marks all blocks as not filled. */
  clearFilled(): void {
    this.#filled.fill(0);
  }

  #numberOf(slot: number, block: number): number {
    const entry = this.tables[slot * this.blocksPerSequence + block];
    // Addresses beyond 2 GiB are negative in a signed list.
    return ((entry >>> 0) - this.#first) / this.#step;
  }
}
