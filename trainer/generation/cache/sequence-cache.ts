import type { EngineStatistics } from '../generation.ts';
import type { ActiveRequest, Sequence } from '../sequence.ts';

export interface SequenceCacheOptions {
  readonly cache: BlockTable;
  /** Sequences that can have a cache at once. */
  readonly maxOpenSequences: number;
  /** All sequences by id; owned by the engine. */
  readonly sequences: ReadonlyMap<number, Sequence>;
  /** Requests that wait for admission, in order; owned by the engine. */
  readonly waiting: readonly ActiveRequest[];
  readonly statistics: EngineStatistics;
}

/**
 * Assigns KV caches to sequences. Prefix caching: sequences with the same beginning share its full blocks, so the
 * prompt of a group is prefilled once and read by all members. Shared blocks are never rewritten, because only blocks
 * with equal tokens are shared; where sequences differ they have separate blocks.
 */
export class SequenceCache {
  readonly #options: SequenceCacheOptions;
  readonly #freeSlots: number[];
  /** Counts changes of the weights. */
  #generation = 0;

  constructor(options: SequenceCacheOptions) {
    const { maxOpenSequences: count } = options;
    this.#options = options;
    this.#freeSlots = Array.from({ length: count }, (_, i) => count - 1 - i);
  }

  /** Reserves room for a sequence's tokens and new ones; false if that has to wait. */
  reserve(sequence: Sequence, newTokens: number): boolean {
    const { cache } = this.#options;
    if (sequence.slot === -1) {
      while (this.#freeSlots.length === 0) if (!this.#evict(sequence)) return false;
      sequence.slot = this.#freeSlots.pop()!;
      sequence.generation = this.#generation;
      this.#share(sequence);
    }
    // The last sampled token needs no place: nothing is computed from it before the next request.
    const blocks = Math.ceil((sequence.length + newTokens - 1) / BLOCK_SIZE);
    while (cache.freeBlocks < blocks - sequence.blocks) if (!this.#evict(sequence)) return false;
    if (blocks > sequence.blocks) {
      cache.addBlocks(sequence.slot, sequence.blocks, blocks);
      sequence.blocks = blocks;
    }
    return true;
  }

  /** Skips tokens that other sequences have prefilled, except the last token, because its logits were not kept. */
  catchUp(sequence: Sequence): void {
    const { cache, statistics } = this.#options;
    while (
      sequence.cached % BLOCK_SIZE === 0 &&
      sequence.cached + BLOCK_SIZE < sequence.length &&
      cache.isFilled(sequence.slot, sequence.cached / BLOCK_SIZE)
    ) {
      sequence.cached += BLOCK_SIZE;
      statistics.shared += BLOCK_SIZE;
    }
  }

  /** Notes that the next `count` tokens of a sequence are computed in the next tick. */
  advance(sequence: Sequence, count: number): void {
    const before = Math.floor(sequence.cached / BLOCK_SIZE);
    sequence.cached += count;
    this.#options.cache.markFilled(sequence.slot, before, Math.floor(sequence.cached / BLOCK_SIZE));
  }

  /** After a change of the weights, caches are invalid, or are kept but no longer shared with new sequences. */
  weightsChanged(keepStaleCache: boolean): void {
    this.#generation++;
    if (keepStaleCache) return;
    this.#options.cache.clearFilled();
    for (const sequence of this.#options.sequences.values()) {
      sequence.cached = 0;
      sequence.generation = this.#generation;
    }
  }

  /** Marks blocks in computation as not filled. */
  distrust(sequences: readonly Sequence[]): void {
    this.#options.cache.clearFilled();
    for (const sequence of sequences) sequence.cached = 0;
  }

  drop(sequence: Sequence): void {
    if (sequence.slot === -1) return;
    this.#options.cache.freeSlot(sequence.slot, sequence.blocks);
    this.#freeSlots.push(sequence.slot);
    sequence.slot = -1;
    sequence.blocks = 0;
    sequence.cached = 0;
  }

  /** Gives a sequence without blocks those of the sequence with the longest common prefix. */
  #share(sequence: Sequence): void {
    const most = Math.floor((sequence.length - 1) / BLOCK_SIZE);
    let donor: Sequence | null = null;
    let blocks = 0;
    for (const other of this.#options.sequences.values()) {
      if (blocks === most) break;
      if (other === sequence || other.slot === -1 || other.generation !== this.#generation) continue;
      const common = commonBlocks(sequence, other, Math.min(most, other.blocks));
      if (common <= blocks) continue;
      donor = other;
      blocks = common;
    }
    if (donor === null) return;
    this.#options.cache.shareBlocks(sequence.slot, donor.slot, blocks);
    sequence.blocks = blocks;
  }

  /** Evicts the cache of the least recently used idle sequence. */
  #evict(except: Sequence): boolean {
    let oldest: Sequence | null = null;
    for (const sequence of this.#options.sequences.values()) {
      if (sequence === except || sequence.slot === -1 || sequence.request !== null) continue;
      if (oldest === null || sequence.lastUsed < oldest.lastUsed) oldest = sequence;
    }
    // The waiting request's own old cache may be evicted too: it is recomputed once there is room.
    if (oldest === null) {
      const waiting = this.#options.waiting.find(
        ({ sequence }) => sequence !== except && sequence.slot !== -1,
      );
      if (waiting === undefined) return false;
      oldest = waiting.sequence;
    }
    this.drop(oldest);
    this.#options.statistics.evictions++;
    return true;
  }
}

/** Number of full blocks, at most `most`, with equal tokens in two sequences. */
function commonBlocks(a: Sequence, b: Sequence, most: number): number {
  const end = Math.min(most * BLOCK_SIZE, b.length);
  let same = 0;
  while (same < end && a.tokens[same] === b.tokens[same]) same++;
  return Math.floor(same / BLOCK_SIZE);
}

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
