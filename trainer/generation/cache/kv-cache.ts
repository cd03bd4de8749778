import { type DecoderConfig, ModelConfigError } from '../../models/config.ts';
import { ropeColumns, ropeTables, ropeWidth } from '../../models/rope.ts';
import { scoreScale } from '../../models/sequence-layout.ts';
import { MemoryPlan, openKernels, PAGE_BYTES } from '../../tensor/runtime/wasm/kernels.ts';
import { BLOCK_SIZE, BlockTable } from './sequence-cache.ts';

const FLOAT_BYTES = 4;
/** Score of positions that do not exist yet; its weight is 0. Scores are in units of log 2. */
const NO_SCORE = -1e30;

/**
 * Added to the scores of the last block: read from element 15 − p on, it hides all positions of the block after its
 * p-th.
 */
export const FUTURE_MASK = Float32Array.from({ length: 2 * BLOCK_SIZE }, (_, i) =>
  i < BLOCK_SIZE ? 0 : NO_SCORE,
);

/** Added to the scores of the first block that a window reaches: read from element 16 − p on, it hides the first p positions. */
export const PAST_MASK = Float32Array.from({ length: 2 * BLOCK_SIZE }, (_, i) =>
  i < BLOCK_SIZE ? NO_SCORE : 0,
);

/** Words of a run record: what one sequence does in a tick. */
const RUN_WORDS = 4;

export interface AttentionShape {
  readonly heads: number;
  readonly keyValueHeads: number;
  /** A multiple of 8. */
  readonly headDimension: number;
  /** Factor on scores; 1 / √headDimension when absent. */
  readonly scale?: number;
  /** Scores s become cap · tanh(s / cap) where it is a number. */
  readonly softcap?: number | null;
  /** Some layers only see a window of positions. */
  readonly windowed?: boolean;
}

/** Fixed places in the shared memory, in bytes. */
export interface AttentionAddresses {
  /** cos then sin of a position's angles, [positions, 2, headDimension / 2]; one such table after another where layers differ. */
  readonly angles: number;
  /** One head's query. */
  readonly query: number;
  /** Scores of one query against all positions, rounded up to whole blocks. */
  readonly scores: number;
  /** {@link FUTURE_MASK} */
  readonly futureMask: number;
  /** {@link PAST_MASK} */
  readonly pastMask: number;
  /** Rows of the tick: [rows, heads · headDimension], twice [rows, keyValueHeads · headDimension]. */
  readonly queries: number;
  readonly keys: number;
  readonly values: number;
  /** [rows, heads · headDimension] */
  readonly mixed: number;
  readonly runs: number;
  /** {@link SHAPE_WORDS} words for the kernel's description of the shape. */
  readonly shape: number;
}

/** Words of `struct shape` in `kernels.c`. */
export const SHAPE_WORDS = 14;

/**
 * `attend(runCount, layerOffset, angles, window)`: attention of every row of the tick in one layer, rotated by the
 * angles at an address, over `window` positions, which only matters for a windowed shape.
 */
export type Attend = (runCount: number, layerOffset: number, angles: number, window: number) => void;

/**
 * Attention over a paged cache for a batch of sequences of any lengths, of one shape. The tick's rows are split into
 * runs, each a record of four 32-bit words: first row, number of rows, position of the first row in its sequence,
 * address of the sequence's list of block addresses. For each run and head the kernel rotates the row's key and query,
 * writes key and value into the block of the row's position, and mixes the values of all positions up to it: rows of
 * one run see each other causally.
 */
export function openAttention(
  shape: AttentionShape,
  places: AttentionAddresses,
  memory: WebAssembly.Memory,
): Attend {
  const { heads, keyValueHeads, headDimension, softcap, windowed } = shape;
  const { scale = 1 / Math.sqrt(headDimension) } = shape;
  const words = new Uint32Array(memory.buffer, places.shape, SHAPE_WORDS);
  const floats = new Float32Array(memory.buffer, places.shape, SHAPE_WORDS);
  words.set([keyValueHeads, heads / keyValueHeads, headDimension]);
  floats[3] = softcap == null ? Math.LOG2E * scale : (2 * Math.LOG2E * scale) / softcap;
  floats[4] = softcap == null ? 0 : softcap * Math.LOG2E;
  const { query, scores, futureMask, pastMask, queries, keys, values, mixed } = places;
  words.set(
    [Number(windowed ?? false), query, scores, futureMask, pastMask, queries, keys, values, mixed],
    5,
  );
  const { attend } = openKernels(memory);
  return (runCount, layerOffset, angles, window) =>
    attend(places.shape, places.runs, runCount, layerOffset, angles, window);
}

/** Bytes of one block: keys and values of all layers for 16 positions of one sequence. */
export function blockBytes(shape: AttentionShape, layers: number): number {
  return layers * layerBytes(shape);
}

/** Bytes of one layer in a block. */
function layerBytes(shape: AttentionShape): number {
  return 2 * BLOCK_SIZE * shape.keyValueHeads * shape.headDimension * FLOAT_BYTES;
}

/** The window of a layer that sees all positions. */
const ALL_POSITIONS = 2 ** 31 - 1;
/** Addresses of WebAssembly memory have 32 bits; a page stays free for the arrays in front of the cache. */
const MAX_MEMORY_BYTES = 2 ** 32 - PAGE_BYTES;

export interface KvCacheLimits {
  readonly maxSequenceLength: number;
  /** Sequences that can have a cache at once. */
  readonly maxOpenSequences: number;
  /** Rows of a tick. */
  readonly maxRows: number;
  /** Plan of other arrays in the cache's memory, placed in front of it. */
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
 * Keys and values of many sequences in blocks of 16 positions, in one WebAssembly memory together with the rows that
 * the attention kernel reads and writes. The whole memory is reserved at the start, and the system fills it when it is
 * touched, so views of it stay valid.
 */
export class KvCache {
  readonly rows: RowArrays;
  /** Addresses of the rows in the memory. */
  readonly places: AttentionAddresses;
  readonly memory: WebAssembly.Memory;
  readonly blockTable: BlockTable;
  readonly #attend: Attend;
  readonly #runs: Int32Array;
  readonly #tablesAddress: number;
  readonly #layerBytes: number;
  /** Address of each layer's rotary angles, and the number of positions it sees. */
  readonly #layers: readonly { readonly angles: number; readonly window: number }[];

  /** @throws ModelConfigError when a head's size is not a multiple of 8, or a single sequence does not fit 4 GiB */
  constructor(config: DecoderConfig, limits: KvCacheLimits) {
    if (config.headDimension % 8 !== 0) {
      throw new ModelConfigError(`generation needs heads of a multiple of 8, got ${config.headDimension}`);
    }
    const { maxRows, maxOpenSequences, maxSequenceLength, plan = new MemoryPlan() } = limits;
    const { heads, keyValueHeads, headDimension } = config;
    const blocksPerSequence = Math.ceil(maxSequenceLength / BLOCK_SIZE);
    const positions = blocksPerSequence * BLOCK_SIZE;
    // The last table rotates nothing, for layers without positions.
    const angleTables = ropeWidth(config) / (headDimension / 2) + 1;
    const places: AttentionAddresses = {
      angles: plan.place(angleTables * positions * headDimension),
      query: plan.place(headDimension),
      scores: plan.place(positions),
      futureMask: plan.place(FUTURE_MASK.length),
      pastMask: plan.place(PAST_MASK.length),
      queries: plan.place(maxRows * heads * headDimension),
      keys: plan.place(maxRows * keyValueHeads * headDimension),
      values: plan.place(maxRows * keyValueHeads * headDimension),
      mixed: plan.place(maxRows * heads * headDimension),
      runs: plan.place(maxRows * RUN_WORDS),
      shape: plan.place(SHAPE_WORDS),
    };
    this.places = places;
    this.#tablesAddress = plan.place(maxOpenSequences * blocksPerSequence);
    const { end } = plan;
    const bytesOfBlock = blockBytes(config, config.layers);
    const wanted = maxOpenSequences * blocksPerSequence;
    const blockCount = Math.min(wanted, Math.floor((MAX_MEMORY_BYTES - end) / bytesOfBlock));
    if (blockCount < blocksPerSequence) {
      throw new ModelConfigError(
        `a sequence of ${maxSequenceLength} tokens needs a cache of ${(blocksPerSequence * bytesOfBlock) / 2 ** 20} MiB, which does not fit 4 GiB: lower the maximum sequence length`,
      );
    }
    const memoryPages = Math.ceil((end + blockCount * bytesOfBlock) / PAGE_BYTES);
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
    this.#layerBytes = layerBytes(config);
    floats(places.futureMask, FUTURE_MASK.length).set(FUTURE_MASK);
    floats(places.pastMask, PAST_MASK.length).set(PAST_MASK);
    writeAngles(config, floats(places.angles, angleTables * positions * headDimension), positions);
    this.#layers = Array.from({ length: config.layers }, (_, layer) => {
      const columns = ropeColumns(config, layer);
      const table = columns === null ? angleTables - 1 : columns[0] / (headDimension / 2);
      return {
        angles: places.angles + table * positions * headDimension * FLOAT_BYTES,
        window: config.attentionLayers?.[layer].window ?? ALL_POSITIONS,
      };
    });
    const shape = {
      ...{ heads, keyValueHeads, headDimension, softcap: config.attentionSoftcap },
      scale: scoreScale(config),
      windowed: config.attentionLayers?.some(({ window }) => window !== null) ?? false,
    };
    this.#attend = openAttention(shape, places, memory);
    this.blockTable = new BlockTable({
      blockCount,
      blocksPerSequence,
      tables: new Int32Array(memory.buffer, this.#tablesAddress, wanted),
      first: end,
      step: bytesOfBlock,
    });
  }

  /** Describes run number `run` of the next tick. */
  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void {
    const word = run * RUN_WORDS;
    this.#runs[word] = firstRow;
    this.#runs[word + 1] = rows;
    this.#runs[word + 2] = position;
    this.#runs[word + 3] = this.#tablesAddress + slot * this.blockTable.blocksPerSequence * FLOAT_BYTES;
  }

  /** Writes keys and values of the tick's rows into the cache and fills `rows.mixed`. */
  attend(runCount: number, layer: number): void {
    const { angles, window } = this.#layers[layer];
    this.#attend(runCount, layer * this.#layerBytes, angles, window);
  }
}

/** Tables of [positions, cos then sin], one for each of the rotary settings and one that rotates nothing. */
function writeAngles(config: DecoderConfig, tables: Float32Array, positions: number): void {
  const half = config.headDimension / 2;
  const width = ropeWidth(config);
  const { cos, sin } = ropeTables(
    config,
    Int32Array.from({ length: positions }, (_, p) => p),
  );
  const size = positions * 2 * half;
  for (let start = 0; start < width; start += half) {
    const table = tables.subarray((start / half) * size);
    for (let p = 0; p < positions; p++) {
      const from = p * width + start;
      table.set(cos.subarray(from, from + half), p * 2 * half);
      table.set(sin.subarray(from, from + half), p * 2 * half + half);
    }
  }
  const still = tables.subarray((width / half) * size);
  for (let p = 0; p < positions; p++) still.fill(1, p * 2 * half, p * 2 * half + half);
}
