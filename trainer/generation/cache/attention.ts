import { openKernels } from '../../tensor/runtime/wasm/kernels.ts';
import { BLOCK_SIZE } from './block-table.ts';

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
export const RUN_WORDS = 4;

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
export function layerBytes(shape: AttentionShape): number {
  return shape.keyValueHeads * headBytes(shape);
}

/** Bytes of one key-value head of a layer in a block. */
function headBytes(shape: AttentionShape): number {
  return 2 * BLOCK_SIZE * shape.headDimension * FLOAT_BYTES;
}
