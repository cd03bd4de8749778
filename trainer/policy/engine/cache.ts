import { type DecoderConfig, ModelConfigError } from '../../models/config.ts';
import { ropeTables } from '../../models/decoder.ts';
import { PAGE_BYTES } from '../../runtime/wasm/code.ts';
import { MemoryPlan } from '../../runtime/wasm/memory-plan.ts';
import {
  type AttentionKernel,
  type AttentionPlaces,
  compileAttention,
  FUTURE_MASK,
  layerBytes,
  PAGE_POSITIONS,
  pageBytes,
  RUN_WORDS,
} from './attention-kernel.ts';

const FLOAT_BYTES = 4;
/** Addresses of WebAssembly memory have 32 bits; a page stays free for the arrays in front of the cache. */
const MAX_MEMORY_BYTES = 2 ** 32 - PAGE_BYTES;

export interface CacheLimits {
  readonly maxSequenceLength: number;
  /** Sequences that can have a cache at once. */
  readonly maxOpenSequences: number;
  /** Rows of a tick. */
  readonly maxRows: number;
  /** What else is to lie in the cache's memory, placed in front of it. */
  readonly plan?: MemoryPlan;
}

/** Rows of a tick, as the tensor program writes and reads them. */
export interface RowArrays {
  readonly queries: Float32Array;
  readonly keys: Float32Array;
  readonly values: Float32Array;
  readonly mixed: Float32Array;
}

/**
 * Keys and values of many sequences in pages of 16 positions, in one WebAssembly memory together with the rows that the
 * attention kernel reads and writes. The memory is reserved whole at the start and filled by the system as it is
 * touched, so that views of it stay valid. Knows pages and slots, not sequences.
 */
export class PagedCache {
  readonly rows: RowArrays;
  /** Where the rows lie in the memory. */
  readonly places: AttentionPlaces;
  readonly memory: WebAssembly.Memory;
  /** Most pages one sequence can have. */
  readonly pagesPerSequence: number;
  readonly pageCount: number;
  readonly #kernel: AttentionKernel;
  readonly #runs: Int32Array;
  readonly #lists: Int32Array;
  readonly #listsAddress: number;
  readonly #layerBytes: number;
  readonly #firstPage: number;
  readonly #pageBytes: number;
  readonly #freePages: Uint32Array;
  #freePageCount: number;
  /** Of each page: slots that it belongs to. */
  readonly #owners: Uint16Array;
  /** Of each page: 1 once all its positions are computed, or will be before they are read. */
  readonly #filled: Uint8Array;

  /** @throws ModelConfigError when a head's size is no multiple of 8, or one sequence alone does not fit 4 GiB */
  constructor(config: DecoderConfig, limits: CacheLimits) {
    if (config.headDimension % 8 !== 0) {
      throw new ModelConfigError(`generation needs heads of a multiple of 8, got ${config.headDimension}`);
    }
    const { maxRows, maxOpenSequences, maxSequenceLength, plan = new MemoryPlan() } = limits;
    const { heads, keyValueHeads, headDimension } = config;
    this.pagesPerSequence = Math.ceil(maxSequenceLength / PAGE_POSITIONS);
    const positions = this.pagesPerSequence * PAGE_POSITIONS;
    const places: AttentionPlaces = {
      angles: plan.place(positions * headDimension),
      query: plan.place(headDimension),
      scores: plan.place(positions),
      futureMask: plan.place(FUTURE_MASK.length),
      queries: plan.place(maxRows * heads * headDimension),
      keys: plan.place(maxRows * keyValueHeads * headDimension),
      values: plan.place(maxRows * keyValueHeads * headDimension),
      mixed: plan.place(maxRows * heads * headDimension),
      runs: plan.place(maxRows * RUN_WORDS),
    };
    this.places = places;
    this.#listsAddress = plan.place(maxOpenSequences * this.pagesPerSequence);
    const { end } = plan;
    const bytesOfPage = pageBytes(config, config.layers);
    const wanted = maxOpenSequences * this.pagesPerSequence;
    this.pageCount = Math.min(wanted, Math.floor((MAX_MEMORY_BYTES - end) / bytesOfPage));
    if (this.pageCount < this.pagesPerSequence) {
      throw new ModelConfigError(
        `a sequence of ${maxSequenceLength} tokens needs a cache of ${(this.pagesPerSequence * bytesOfPage) / 2 ** 20} MiB, which does not fit 4 GiB: lower the maximum sequence length`,
      );
    }
    const memoryPages = Math.ceil((end + this.pageCount * bytesOfPage) / PAGE_BYTES);
    const memory = new WebAssembly.Memory({ initial: memoryPages, maximum: memoryPages });
    this.memory = memory;
    const floats = (address: number, count: number) => new Float32Array(memory.buffer, address, count);
    this.rows = {
      queries: floats(places.queries, maxRows * heads * headDimension),
      keys: floats(places.keys, maxRows * keyValueHeads * headDimension),
      values: floats(places.values, maxRows * keyValueHeads * headDimension),
      mixed: floats(places.mixed, maxRows * heads * headDimension),
    };
    this.#runs = new Int32Array(memory.buffer, places.runs, maxRows * RUN_WORDS);
    this.#lists = new Int32Array(memory.buffer, this.#listsAddress, wanted);
    this.#layerBytes = layerBytes(config);
    floats(places.futureMask, FUTURE_MASK.length).set(FUTURE_MASK);
    writeAngles(config, floats(places.angles, positions * headDimension), positions);
    this.#kernel = compileAttention(config, places, memory);
    this.#firstPage = end;
    this.#pageBytes = bytesOfPage;
    this.#freePages = Uint32Array.from({ length: this.pageCount }, (_, i) => end + i * bytesOfPage).reverse();
    this.#freePageCount = this.pageCount;
    this.#owners = new Uint16Array(this.pageCount);
    this.#filled = new Uint8Array(this.pageCount);
  }

  get freePages(): number {
    return this.#freePageCount;
  }

  /** Gives slot `slot` pages `from` to `to` of its sequence. The caller has seen to it that they are free. */
  addPages(slot: number, from: number, to: number): void {
    const list = slot * this.pagesPerSequence;
    for (let page = from; page < to; page++) {
      const address = this.#freePages[--this.#freePageCount];
      const number = this.#numberOf(address);
      this.#owners[number] = 1;
      this.#filled[number] = 0;
      this.#lists[list + page] = address;
    }
  }

  /** Gives a slot without pages the first `count` of another, to be theirs in common. */
  sharePages(slot: number, other: number, count: number): void {
    const [list, otherList] = [slot * this.pagesPerSequence, other * this.pagesPerSequence];
    for (let page = 0; page < count; page++) {
      const address = this.#lists[otherList + page];
      this.#owners[this.#numberOf(address)]++;
      this.#lists[list + page] = address;
    }
  }

  /** Takes the first `count` pages of a slot back; those that no other slot has are free then. */
  freeSlot(slot: number, count: number): void {
    const list = slot * this.pagesPerSequence;
    for (let page = count - 1; page >= 0; page--) {
      const address = this.#lists[list + page];
      if (--this.#owners[this.#numberOf(address)] === 0) this.#freePages[this.#freePageCount++] = address;
    }
  }

  /** Whether a page of a slot holds all its positions, computed for this slot or another that shares it. */
  isFilled(slot: number, page: number): boolean {
    return this.#filled[this.#numberOf(this.#lists[slot * this.pagesPerSequence + page])] === 1;
  }

  /** Pages `from` to `to` of a slot are computed in the coming tick at the latest. */
  markFilled(slot: number, from: number, to: number): void {
    const list = slot * this.pagesPerSequence;
    for (let page = from; page < to; page++) this.#filled[this.#numberOf(this.#lists[list + page])] = 1;
  }

  /** No page counts as filled any more. */
  clearFilled(): void {
    this.#filled.fill(0);
  }

  /** Describes run number `run` of the coming tick. */
  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void {
    const word = run * RUN_WORDS;
    this.#runs[word] = firstRow;
    this.#runs[word + 1] = rows;
    this.#runs[word + 2] = position;
    this.#runs[word + 3] = this.#listsAddress + slot * this.pagesPerSequence * FLOAT_BYTES;
  }

  /** Writes keys and values of the tick's rows into the cache and fills `rows.mixed`. */
  attend(runCount: number, layer: number): void {
    this.#kernel(runCount, layer * this.#layerBytes);
  }

  #numberOf(address: number): number {
    return ((address >>> 0) - this.#firstPage) / this.#pageBytes;
  }
}

function writeAngles(config: DecoderConfig, table: Float32Array, positions: number): void {
  const half = config.headDimension / 2;
  const { cos, sin } = ropeTables(
    config,
    Int32Array.from({ length: positions }, (_, p) => p),
  );
  for (let p = 0; p < positions; p++) {
    table.set(cos.subarray(p * half, (p + 1) * half), p * 2 * half);
    table.set(sin.subarray(p * half, (p + 1) * half), p * 2 * half + half);
  }
}
