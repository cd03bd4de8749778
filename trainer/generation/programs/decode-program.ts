import type { Random } from '../../../shared/random.ts';
import type { BlockTable } from '../cache/block-table.ts';
import type { SamplingSettings } from '../generation.ts';
import type { ResponseGrammar } from '../grammar.ts';
import type { LogitsProcessor } from '../logits-processor.ts';
import type { SampledToken } from '../sampling.ts';

/** Settings that a head row's token is sampled with. */
export interface RowSampling {
  readonly sampling: SamplingSettings;
  readonly rng: Random;
  readonly grammar: ResponseGrammar | null;
  readonly grammarState: number;
  readonly processor: LogitsProcessor | null;
  /** Most probable tokens to report; undefined for none. */
  readonly topLogProbs: number | undefined;
}

/** Sampler within a program, so that no logits have to come from its device. */
export interface RowSampler {
  /** True if it can sample so; otherwise the pass has to return the row's logits. */
  handles(sample: RowSampling): boolean;
  /** Says how head row `row` of the coming pass samples; takes as many numbers from its generator as sampling here would. */
  set(row: number, sample: RowSampling): void;
  /** Rows `from` to `to` of the coming pass are not sampled here. */
  skip(from: number, to: number): void;
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
  /** Logits of the head rows after {@link run}, one row every `logitsStride` numbers; without meaning where none were wanted. */
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
   * Runs the first `rows` of `ids`, after their runs were set.
   * @param headRows rows that tokens are sampled for, ascending; the first `headCount` count
   * @param logits true if their logits are wanted; a program without a sampler always returns them
   */
  run(rows: number, runs: number, headRows: Int32Array, headCount: number, logits: boolean): Promise<void>;

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
