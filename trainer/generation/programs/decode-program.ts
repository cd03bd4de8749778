import type { Random } from '../../../shared/random.ts';
import type { BlockTable } from '../cache/block-table.ts';
import type { SamplingSettings } from '../generation.ts';
import type { CompiledGrammar } from '../grammar.ts';
import type { SampledToken } from '../sampling.ts';

/** What a head row samples its token by. */
export interface RowSampling {
  readonly sampling: SamplingSettings;
  readonly rng: Random;
  readonly grammar: CompiledGrammar | null;
  readonly grammarState: number;
}

/** Where a program samples tokens itself, so that no logits have to come from its device. */
export interface RowSampler {
  /** Says how head row `row` of the coming pass samples; takes as many numbers from its generator as sampling here would. */
  set(row: number, sample: RowSampling): void;
  /**
   * The sampled token after the pass; the next call overwrites it.
   * @throws RangeError when a logit that counts was NaN
   */
  get(row: number): SampledToken;
}

/**
 * One pass of a decoder over packed tokens of many sequences, attention over their cache included. What comes out for a row
 * depends on its sequence alone, to the bit.
 */
export interface DecodeProgram {
  /** Tokens of the pass, written by the caller. */
  readonly ids: Int32Array;
  /** Null where logits come back and tokens are sampled from them here. */
  readonly sampler: RowSampler | null;
  /** Logits of the head rows after {@link run}, one row every `logitsStride` numbers; empty where tokens are sampled there. */
  readonly logits: Float32Array;
  readonly logitsStride: number;
  /** Values of the head rows, one every `valuesStride` numbers; meaningless without a value head. */
  readonly values: Float32Array;
  readonly valuesStride: number;

  /** Which blocks of its cache belong to whom. */
  readonly blockTable: BlockTable;

  /** Describes run number `run` of the coming pass: `rows` rows from `firstRow` on are a sequence's from `position` on. */
  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void;

  /**
   * Runs the first `rows` of `ids`, whose runs were set.
   * @param headRows rows whose logits are wanted, ascending; the first `headCount` count
   */
  run(rows: number, runs: number, headRows: Int32Array, headCount: number): Promise<void>;

  /** The parameters hold other weights than at the last run. */
  weightsChanged(): void;
}

/** Moves rows `rows[i]` of `source` to row i of `out`; the two may be one array when the rows ascend. */
export function gatherRows(
  source: Float32Array,
  width: number,
  rows: Int32Array,
  count: number,
  out: Float32Array,
): void {
  let to = 0;
  for (let i = 0; i < count; i++) {
    const from = rows[i] * width;
    for (let j = 0; j < width; j++) out[to++] = source[from + j];
  }
}
