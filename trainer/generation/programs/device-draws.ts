import type { GraphBuilder, Tensor } from '../../tensor/graph/graph.ts';
import { DRAW_RESULTS, DRAW_SETTINGS, draw } from '../../tensor/graph/operations/device/draw.ts';
import type { CompiledGrammar } from '../grammar.ts';
import type { Draw } from '../sampling.ts';
import type { RowDraw, RowDraws } from './decode-program.ts';

/** Entries of a table of what grammars forbid, which every compiled pass holds. */
const LARGEST_TABLE = 2 ** 20;
/** Added to logits of tokens that a grammar forbids: their weights are 0. */
const FORBIDDEN_LOGIT = -1e9;
/** In place of the uniform number: takes the largest logit. */
const GREEDY = -1;

/** What a pass takes and gives to draw tokens on its device. */
export interface BoundDraws {
  readonly inputs: { readonly [name: string]: Float32Array | Int32Array };
  readonly outputs: { readonly [name: string]: Float32Array };
}

/**
 * Drawing on a device as `Sampler` draws here, from the same random numbers. It is not the same to the bit: the device's
 * exponential rounds in its own way, sums are float32 in another order, and so is the random number. Log-probabilities agree to
 * about 1e-5; a token is its neighbour where the number falls within rounding of the border between the two, which among
 * tens of thousands of tokens happens now and then. The log-probability is that of the token drawn in any case.
 */
export class DeviceDraws implements RowDraws {
  readonly #vocabularySize: number;
  /** Row of each grammar's first state in the table; row 0 forbids nothing. */
  readonly #firstRows: ReadonlyMap<CompiledGrammar, number>;
  /** Null without grammars. */
  readonly #table: Float32Array | null;
  readonly #settings: Float32Array;
  readonly #states: Int32Array;
  readonly #drawn: Float32Array;
  readonly #draw: Draw = { token: 0, logProb: 0 };

  private constructor(
    vocabularySize: number,
    firstRows: ReadonlyMap<CompiledGrammar, number>,
    table: Float32Array | null,
    maxRows: number,
  ) {
    this.#vocabularySize = vocabularySize;
    this.#firstRows = firstRows;
    this.#table = table;
    this.#settings = new Float32Array(maxRows * DRAW_SETTINGS);
    this.#states = new Int32Array(maxRows);
    this.#drawn = new Float32Array(maxRows * DRAW_RESULTS);
  }

  /** @returns null where the grammars' states times the vocabulary are too many for a device: logits come back then */
  static create(
    vocabularySize: number,
    grammars: ReadonlyMap<string, CompiledGrammar>,
    maxRows: number,
  ): DeviceDraws | null {
    const firstRows = new Map<CompiledGrammar, number>();
    let rows = 1;
    for (const grammar of grammars.values()) {
      firstRows.set(grammar, rows);
      rows += grammar.stateCount;
    }
    if (rows === 1) return new DeviceDraws(vocabularySize, firstRows, null, maxRows);
    if (rows * vocabularySize > LARGEST_TABLE) return null;
    const table = new Float32Array(rows * vocabularySize);
    for (const [{ allowed }, first] of firstRows) {
      allowed.forEach((flag, i) => {
        if (flag === 0) table[first * vocabularySize + i] = FORBIDDEN_LOGIT;
      });
    }
    return new DeviceDraws(vocabularySize, firstRows, table, maxRows);
  }

  /** Adds the draw to a pass with these logits [rows, vocabulary]. */
  build(g: GraphBuilder, logits: Tensor): BoundDraws {
    const [rows] = logits.shape;
    const settings = g.input('drawSettings', 'float32', [rows, DRAW_SETTINGS]);
    const inputs = { drawSettings: this.#settings.subarray(0, rows * DRAW_SETTINGS) };
    const outputs = { drawn: this.#drawn.subarray(0, rows * DRAW_RESULTS) };
    if (this.#table === null) {
      g.output('drawn', draw(g, logits, settings));
      return { inputs, outputs };
    }
    const table = g.constant(this.#table, [this.#table.length / this.#vocabularySize, this.#vocabularySize]);
    const forbidden = g.gather(table, g.input('grammarRows', 'int32', [rows]));
    g.output('drawn', draw(g, g.add(logits, forbidden), settings));
    return { inputs: { ...inputs, grammarRows: this.#states.subarray(0, rows) }, outputs };
  }

  set(row: number, { sampling, rng, grammar, grammarState }: RowDraw): void {
    const { temperature, topK, topP } = sampling;
    const numbers = temperature === 0 ? [0, 0, 1, GREEDY] : [1 / temperature, topK, topP, rng.float()];
    this.#settings.set(numbers, row * DRAW_SETTINGS);
    this.#states[row] = grammar === null ? 0 : this.#firstRows.get(grammar)! + grammarState;
  }

  /** Rows `from` to `to` only fill a pass up. */
  fill(from: number, to: number): void {
    this.#states.fill(0, from, to);
    for (let row = from; row < to; row++) this.#settings.set([0, 0, 1, GREEDY], row * DRAW_SETTINGS);
  }

  get(row: number): Draw {
    const [token, weight, total] = this.#drawn.subarray(row * DRAW_RESULTS, (row + 1) * DRAW_RESULTS);
    const logProb = Math.log(weight / total);
    if (token === -1 || !Number.isFinite(logProb))
      throw new RangeError('no token can be drawn: logits are NaN');
    this.#draw.token = token;
    this.#draw.logProb = logProb;
    return this.#draw;
  }
}
