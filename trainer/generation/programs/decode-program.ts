import type { Random } from '../../../shared/random.ts';
import type { DecoderConfig } from '../../models/config.ts';
import type { ParameterSource } from '../../tensor/runtime/parameter-store.ts';
import type { Runtime } from '../../tensor/runtime/runtime.ts';
import type { BlockTable } from '../cache/sequence-cache.ts';
import type { SamplingSettings } from '../generation.ts';
import type { CompiledGrammar, ResponseGrammar } from '../grammar.ts';
import type { LogitsProcessor } from '../logits-processor.ts';
import type { SampledToken } from '../sampling.ts';

/**
 * `kernels`: ragen's WebAssembly; `segments`: programs of the runtime between the attentions; `device`: everything on a
 * device with its own memory.
 */
export type DecodeProgramKind = 'kernels' | 'segments' | 'device';

/** Parts and limits of every program. */
export interface DecodeProgramOptions {
  readonly config: DecoderConfig;
  readonly valueHead: boolean;
  readonly runtime: Runtime;
  readonly parameters: ParameterSource;
  readonly maxSequenceLength: number;
  /** Sequences that keep their cache at once; others are recomputed when they continue. */
  readonly maxOpenSequences: number;
  /** Grammars that requests may name. */
  readonly grammars?: ReadonlyMap<string, CompiledGrammar>;
}

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

/** Sampler inside a program, so that logits stay on its device. */
export interface RowSampler {
  /** True if it supports these settings; otherwise the pass has to return the row's logits. */
  handles(sample: RowSampling): boolean;
  /**
   * Sets how head row `row` of the next pass samples. Takes as many random numbers from its generator as sampling on
   * the processor would.
   */
  set(row: number, sample: RowSampling): void;
  /** Rows `from` to `to` of the next pass are not sampled here. */
  skip(from: number, to: number): void;
  /**
   * The sampled token after the pass; the next call overwrites it.
   * @throws RangeError when a relevant logit was NaN
   */
  get(row: number): SampledToken;
}

/**
 * One pass of a decoder over packed tokens of many sequences, including attention over their cache. The result of a row
 * depends only on its sequence, to the bit.
 */
export interface DecodeProgram {
  /** Tokens of the pass, written by the caller. */
  readonly ids: Int32Array;
  /** Null if the program returns logits and tokens are sampled from them here. */
  readonly sampler: RowSampler | null;
  /**
   * Logits of the head rows after {@link run}, one row every `logitsStride` numbers; undefined contents if none were
   * requested.
   */
  readonly logits: Float32Array;
  readonly logitsStride: number;
  /** Values of the head rows, one every `valuesStride` numbers; undefined contents without a value head. */
  readonly values: Float32Array;
  readonly valuesStride: number;

  /** Assignment of its cache's blocks. */
  readonly blockTable: BlockTable;

  /**
   * Describes run number `run` of the next pass: `rows` rows from `firstRow` on belong to a sequence from `position`
   * on.
   */
  setRun(run: number, firstRow: number, rows: number, position: number, slot: number): void;

  /**
   * Runs the first `rows` of `ids`, after their runs were set.
   * @param headRows rows to sample tokens for, ascending; the first `headCount` are used
   * @param logits true if their logits are needed; a program without a sampler always returns them
   */
  run(rows: number, runs: number, headRows: Int32Array, headCount: number, logits: boolean): Promise<void>;

  /** Reports that the weights changed since the last run. */
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
