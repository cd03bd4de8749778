import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import { type CompiledGrammar, grammarStates } from '../../generation/grammar.ts';
import type { ScoreRequest } from '../policy.ts';

/** Added to logits of tokens that a mask forbids; finite, so that entropies stay finite. */
const FORBIDDEN_LOGIT = -1e9;
/** Fewest rows of a table. Their number is a power of two, as programs are compiled for each. */
const FEWEST_ROWS = 8;
/** Tokens of a set up to which it is also known by its content, not only by its identity. */
const MAX_COMPARED = 4096;

/** A sequence with the mask that its sampled tokens were chosen under. */
export type MaskedSequence = Pick<ScoreRequest, 'tokenIds' | 'lossMask' | 'grammar' | 'allowed'>;

/**
 * The masks that the sampled tokens of a micro-batch were chosen under, each once: rows of a table of the vocabulary's width, of
 * which row 0 allows every token.
 */
export class TokenMasks {
  readonly #sets: ArrayLike<number>[] = [];
  readonly #numbers = new Map<ArrayLike<number> | string, number>();
  /** Row of each token of each sequence. */
  readonly #rows: Int32Array[];

  private constructor(sequences: readonly MaskedSequence[], grammars: ReadonlyMap<string, CompiledGrammar>) {
    this.#rows = sequences.map(sequence => {
      const rows = new Int32Array(sequence.tokenIds.length);
      for (const [t, set] of setsOf(sequence, grammars)) rows[t] = this.#row(set);
      return rows;
    });
  }

  /**
   * @returns null where nothing was masked
   * @throws RangeError for an unknown grammar, and for a token that its mask forbids
   */
  static of(
    sequences: readonly MaskedSequence[],
    grammars: ReadonlyMap<string, CompiledGrammar>,
  ): TokenMasks | null {
    const any = sequences.some(({ grammar, allowed }) => grammar !== undefined || allowed !== undefined);
    return any ? new TokenMasks(sequences, grammars) : null;
  }

  /** Rows of the table, some of which may be unused. */
  get count(): number {
    return 2 ** Math.ceil(Math.log2(Math.max(FEWEST_ROWS, 1 + this.#sets.length)));
  }

  rowsOf(sequence: number): Int32Array {
    return this.#rows[sequence];
  }

  /** Writes the table: 0 where a token is allowed. */
  fill(table: Float32Array): void {
    const width = table.length / this.count;
    table.fill(0, 0, width);
    table.fill(FORBIDDEN_LOGIT, width);
    this.#sets.forEach((set, i) => {
      for (let k = 0; k < set.length; k++) table[(i + 1) * width + set[k]] = 0;
    });
  }

  #row(set: ArrayLike<number>): number {
    const known = this.#numbers.get(set);
    if (known !== undefined) return known;
    const content = set.length <= MAX_COMPARED ? Array.from(set).join() : set;
    let row = this.#numbers.get(content);
    if (row === undefined) {
      row = this.#sets.push(set);
      this.#numbers.set(content, row);
    }
    this.#numbers.set(set, row);
    return row;
  }
}

/** Allowed tokens by the position of sampled tokens. */
function setsOf(
  { tokenIds, lossMask, grammar: name, allowed }: MaskedSequence,
  grammars: ReadonlyMap<string, CompiledGrammar>,
): Iterable<readonly [number, ArrayLike<number>]> {
  if (allowed !== undefined) {
    return [...allowed].filter(([t, set]) => {
      if (!lossMask[t]) return false;
      if (set.includes(tokenIds[t])) return true;
      throw new RangeError(`token ${tokenIds[t]} at ${t} is not among the ${set.length} that were allowed`);
    });
  }
  if (name === undefined) return [];
  const grammar = grammars.get(name);
  if (grammar === undefined) {
    const known = [...grammars.keys()].join(', ') || 'none';
    throw new RangeError(`no grammar is named ${name}; the policy was given: ${known}`);
  }
  const states = grammarStates(grammar, tokenIds, lossMask, -1);
  return Array.from(states.entries()).flatMap(([t, state]) =>
    state === -1 ? [] : [[t, grammar.tokens[state]] as const],
  );
}

/** @throws RangeError when a sequence does not fit the policy, or its arrays do not fit each other */
export function checkSequence(
  sequence: ScoreRequest | TrainingSequence,
  policy: { readonly maxSequenceLength: number; readonly vocabularySize: number },
  what: string,
): void {
  const { tokenIds, lossMask } = sequence;
  const { maxSequenceLength, vocabularySize } = policy;
  if (tokenIds.length < 2 || tokenIds.length > maxSequenceLength) {
    throw new RangeError(
      `${what} has ${tokenIds.length} tokens; it must have 2 to ${maxSequenceLength} (maxSequenceLength)`,
    );
  }
  for (const [name, value] of Object.entries(sequence)) {
    if (ArrayBuffer.isView(value) && (value as Int32Array).length !== tokenIds.length) {
      throw new RangeError(
        `${what}: ${name} has ${(value as Int32Array).length} entries for ${tokenIds.length} tokens`,
      );
    }
  }
  if (lossMask[0]) throw new RangeError(`${what}: the loss mask trains position 0, which nothing predicts`);
  checkTokens(tokenIds, vocabularySize, what);
  if (sequence.targets !== undefined) checkTokens(sequence.targets, vocabularySize, `the targets of ${what}`);
}

/** @throws RangeError when a token id is outside the vocabulary */
export function checkTokens(tokenIds: Int32Array, vocabularySize: number, what: string): void {
  for (let t = 0; t < tokenIds.length; t++) {
    if (!(tokenIds[t] >= 0 && tokenIds[t] < vocabularySize)) {
      throw new RangeError(
        `${what}: token id ${tokenIds[t]} at ${t} is outside the vocabulary of ${vocabularySize}`,
      );
    }
  }
}

/** @throws RangeError */
export function checkTemperature(temperature: number): void {
  if (!(temperature > 0) || !Number.isFinite(temperature)) {
    throw new RangeError(
      `temperature must be above 0 where tokens are scored or trained on, got ${temperature}`,
    );
  }
}

/** @throws RangeError when the trained tokens of a sequence differ in their advantages, which a loss per sequence can't use */
export function checkOneAdvantage({ lossMask, advantages }: TrainingSequence, index: number): void {
  const first = lossMask.indexOf(1);
  for (let t = first + 1; first >= 0 && t < lossMask.length; t++) {
    if (lossMask[t] && advantages[t] !== advantages[first]) {
      throw new RangeError(
        `training sequence ${index}: the advantage is ${advantages[first]} at token ${first} and ${advantages[t]} at ${t}, but the loss takes one per sequence: choose an advantage that is the same for a whole episode, such as grpo`,
      );
    }
  }
}

/** True if the sequences have targets for a value head. @throws RangeError when only some of the sequences have returns */
export function haveReturns(sequences: readonly TrainingSequence[]): boolean {
  const count = sequences.filter(({ returns }) => returns !== undefined).length;
  if (count === 0 || count === sequences.length) return count > 0;
  throw new RangeError(
    `${count} of ${sequences.length} training sequences have returns: give them to all, or to none to leave the value head as it is`,
  );
}
