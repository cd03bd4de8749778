import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { SAMPLE_RESULTS, SAMPLE_SETTINGS, sample } from '../../tensor/graph/operations/device.ts';
import type { CompiledGrammar, ResponseGrammar } from '../grammar.ts';
import type { SampledToken } from '../sampling.ts';
import type { RowSampler, RowSampling } from './decode-program.ts';

/** Entries of a table of what grammars forbid, which every compiled pass holds. */
const MAX_TABLE = 2 ** 20;
/** Added to logits of tokens that a grammar forbids: their weights are 0. */
const FORBIDDEN_LOGIT = -1e9;
/** Settings of a row that takes the largest logit: −1 replaces the uniform number. */
const UNSAMPLED: readonly number[] = [0, 0, 1, -1, 0];

/** Inputs and outputs of a pass that samples tokens on its device. */
export interface BoundSampler {
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
  readonly outputs: { readonly [name: string]: Float32Array };
}

/**
 * Sampling on a device as `Sampler` samples here, from the same random numbers. It is not the same to the bit: the device's
 * exponential rounds in its own way, sums are float32 in another order, and so is the random number. Log-probabilities agree to
 * about 1e-5; a token is its neighbor where the number falls within rounding of the border between the two, which among
 * tens of thousands of tokens happens now and then. The log-probability is that of the token sampled in any case.
 */
export class DeviceSampler implements RowSampler {
  readonly #vocabularySize: number;
  /** Row of each grammar's first state in the table; row 0 forbids nothing. */
  readonly #firstRows: ReadonlyMap<ResponseGrammar, number>;
  /** Null without grammars. */
  readonly #table: Float32Array | null;
  readonly #settings: Float32Array;
  readonly #states: Int32Array;
  readonly #sampled: Float32Array;
  readonly #sample: SampledToken = { token: 0, logProb: 0 };

  private constructor(
    vocabularySize: number,
    firstRows: ReadonlyMap<ResponseGrammar, number>,
    table: Float32Array | null,
    maxRows: number,
  ) {
    this.#vocabularySize = vocabularySize;
    this.#firstRows = firstRows;
    this.#table = table;
    this.#settings = new Float32Array(maxRows * SAMPLE_SETTINGS);
    this.#states = new Int32Array(maxRows);
    this.#sampled = new Float32Array(maxRows * SAMPLE_RESULTS);
  }

  /** @returns null where the grammars' states times the vocabulary are too many for a device: logits come back then */
  static create(
    vocabularySize: number,
    grammars: ReadonlyMap<string, CompiledGrammar>,
    maxRows: number,
  ): DeviceSampler | null {
    const firstRows = new Map<CompiledGrammar, number>();
    let rows = 1;
    for (const grammar of grammars.values()) {
      firstRows.set(grammar, rows);
      rows += grammar.stateCount;
    }
    if (rows === 1) return new DeviceSampler(vocabularySize, firstRows, null, maxRows);
    if (rows * vocabularySize > MAX_TABLE) return null;
    const table = new Float32Array(rows * vocabularySize);
    for (const [{ allowed }, first] of firstRows) {
      allowed.forEach((flag, i) => {
        if (flag === 0) table[first * vocabularySize + i] = FORBIDDEN_LOGIT;
      });
    }
    return new DeviceSampler(vocabularySize, firstRows, table, maxRows);
  }

  /** Adds the sample to a pass with these logits [rows, vocabulary]. */
  build(g: GraphBuilder, logits: Tensor): BoundSampler {
    const [rows] = logits.shape;
    const settings = g.input('sampleSettings', 'float32', [rows, SAMPLE_SETTINGS]);
    const inputs = { sampleSettings: this.#settings.subarray(0, rows * SAMPLE_SETTINGS) };
    const outputs = { sampled: this.#sampled.subarray(0, rows * SAMPLE_RESULTS) };
    if (this.#table === null) {
      g.output('sampled', sample(g, logits, settings));
      return { inputs, outputs };
    }
    const table = g.constant(this.#table, [this.#table.length / this.#vocabularySize, this.#vocabularySize]);
    const forbidden = g.gather(table, g.input('grammarRows', 'int32', [rows]));
    g.output('sampled', sample(g, g.add(logits, forbidden), settings));
    return { inputs: { ...inputs, grammarRows: this.#states.subarray(0, rows) }, outputs };
  }

  handles({ sampling, grammar, processor, topLogProbs }: RowSampling): boolean {
    if (processor !== null || (grammar !== null && !this.#firstRows.has(grammar))) return false;
    return topLogProbs === undefined || (topLogProbs === 0 && sampling.temperature > 0);
  }

  set(row: number, { sampling, rng, grammar, grammarState }: RowSampling): void {
    const { temperature, topK, topP, minP = 0 } = sampling;
    const numbers = temperature === 0 ? UNSAMPLED : [1 / temperature, topK, topP, rng.float(), minP];
    this.#settings.set(numbers, row * SAMPLE_SETTINGS);
    this.#states[row] = grammar === null ? 0 : this.#firstRows.get(grammar)! + grammarState;
  }

  skip(from: number, to: number): void {
    this.#states.fill(0, from, to);
    for (let row = from; row < to; row++) this.#settings.set(UNSAMPLED, row * SAMPLE_SETTINGS);
  }

  get(row: number): SampledToken {
    const [token, weight, total] = this.#sampled.subarray(row * SAMPLE_RESULTS, (row + 1) * SAMPLE_RESULTS);
    const logProb = Math.log(weight / total);
    if (token === -1 || !Number.isFinite(logProb))
      throw new RangeError('no token can be sampled: logits are NaN');
    this.#sample.token = token;
    this.#sample.logProb = logProb;
    return this.#sample;
  }
}
