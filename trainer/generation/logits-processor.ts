import { isDeepStrictEqual } from 'node:util';
import type { LogitSettings } from './generation.ts';

/** Token ids of a text. */
export type Encode = (text: string) => readonly number[];

const GREATEST_PENALTY = 2;
const GREATEST_BIAS = 100;

/** A bad word in token ids. */
interface BadWord {
  readonly before: readonly number[];
  readonly last: number;
}

/**
 * Changes the logits of one response before its tokens are sampled. The rules are those of the processors with these
 * names in transformers and vLLM: `repetitionPenalty` counts prompt and response, the other penalties and bad words
 * only the response.
 */
export class LogitsProcessor {
  readonly #bias: readonly (readonly [id: number, bias: number])[];
  readonly #repetition: number;
  readonly #presence: number;
  readonly #frequency: number;
  readonly #badWords: readonly BadWord[];
  /** Tokens of prompt and response; empty without a repetition penalty. */
  readonly #seen: Set<number>;
  /** Count of each of the response's tokens. */
  readonly #counts = new Map<number, number>();
  readonly #response: number[] = [];

  private constructor(settings: LogitSettings, prompt: Int32Array, badWords: readonly BadWord[]) {
    const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {} } = settings;
    this.#bias = Object.entries(logitBias).map(([id, bias]) => [Number(id), bias]);
    this.#repetition = repetitionPenalty;
    this.#presence = presencePenalty;
    this.#frequency = frequencyPenalty;
    this.#badWords = badWords;
    this.#seen = new Set(repetitionPenalty === 1 ? [] : prompt);
  }

  /**
   * @param prompt all tokens before the response
   * @param encode needed for bad words
   * @returns null where the settings change nothing
   * @throws RangeError naming the setting that is out of range
   */
  static create(
    settings: LogitSettings,
    prompt: Int32Array,
    vocabularySize: number,
    encode: Encode | undefined,
  ): LogitsProcessor | null {
    checkLogitSettings(settings);
    if (!changesLogits(settings)) return null;
    for (const id of Object.keys(settings.logitBias ?? {})) {
      if (Number(id) < vocabularySize) continue;
      throw new RangeError(`logitBias names token ${id}, outside the vocabulary of ${vocabularySize}`);
    }
    return new LogitsProcessor(settings, prompt, knownBadWords(settings.badWords ?? [], encode));
  }

  /** Changes a row of logits in place. */
  process(row: Float32Array): void {
    for (const [id, bias] of this.#bias) row[id] += bias;
    for (const id of this.#seen)
      row[id] = row[id] > 0 ? row[id] / this.#repetition : row[id] * this.#repetition;
    if (this.#presence !== 0 || this.#frequency !== 0) {
      for (const [id, count] of this.#counts) row[id] -= this.#frequency * count + this.#presence;
    }
    for (const word of this.#badWords) if (this.#isOpen(word)) row[word.last] = Number.NEGATIVE_INFINITY;
  }

  /** Counts a sampled token. */
  take(token: number): void {
    if (this.#repetition !== 1) this.#seen.add(token);
    this.#counts.set(token, (this.#counts.get(token) ?? 0) + 1);
    if (this.#badWords.length > 0) this.#response.push(token);
  }

  /** True if the response ends with a bad word except for its last token. */
  #isOpen({ before }: BadWord): boolean {
    const start = this.#response.length - before.length;
    return start >= 0 && before.every((id, i) => this.#response[start + i] === id);
  }
}

/** True if settings change any logit. */
function changesLogits(settings: LogitSettings): boolean {
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias, badWords } = settings;
  return (
    repetitionPenalty !== 1 ||
    presencePenalty !== 0 ||
    frequencyPenalty !== 0 ||
    Object.keys(logitBias ?? {}).length > 0 ||
    (badWords ?? []).length > 0
  );
}

/** @throws RangeError naming the setting that is out of range */
function checkLogitSettings(settings: LogitSettings): void {
  const { repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0, logitBias = {} } = settings;
  if (!(repetitionPenalty > 0) || !Number.isFinite(repetitionPenalty)) {
    throw new RangeError(`repetitionPenalty must be a number above 0, got ${repetitionPenalty}`);
  }
  for (const [name, penalty] of Object.entries({ presencePenalty, frequencyPenalty })) {
    if (Math.abs(penalty) <= GREATEST_PENALTY) continue;
    throw new RangeError(`${name} must be from -${GREATEST_PENALTY} to ${GREATEST_PENALTY}, got ${penalty}`);
  }
  for (const [id, bias] of Object.entries(logitBias)) {
    if (!/^\d+$/.test(id)) throw new RangeError(`logitBias names ${id}, which is not a token id`);
    if (Math.abs(bias) <= GREATEST_BIAS) continue;
    throw new RangeError(
      `logitBias of ${id} must be from -${GREATEST_BIAS} to ${GREATEST_BIAS}, got ${bias}`,
    );
  }
}

/** The last list of bad words and its token ids, by tokenizer: the choices of a request, and the requests of a run, share one. */
const lastBadWords = new WeakMap<
  Encode,
  { readonly words: readonly string[]; readonly ids: readonly BadWord[] }
>();

function knownBadWords(words: readonly string[], encode: Encode | undefined): readonly BadWord[] {
  const last = encode && lastBadWords.get(encode);
  if (last && isDeepStrictEqual(last.words, words)) return last.ids;
  const ids = badWordsOf(words, encode);
  if (encode && words.length > 0) lastBadWords.set(encode, { words, ids });
  return ids;
}

/**
 * Token ids of words, as in vLLM: of each by itself, and with a space in front if that gives another first token and
 * the same number of tokens.
 * @throws RangeError for an empty word, or without a tokenizer
 */
function badWordsOf(words: readonly string[], encode: Encode | undefined): BadWord[] {
  if (words.length === 0) return [];
  if (encode === undefined) {
    throw new RangeError('bad words need a tokenizer: give the policy the files of one, or use logitBias');
  }
  return words.flatMap(word => {
    const plain = encode(word.trimStart());
    if (plain.length === 0) throw new RangeError('a bad word must not be empty');
    const spaced = encode(` ${word.trimStart()}`);
    const another = spaced[0] !== plain[0] && spaced.length === plain.length;
    return (another ? [plain, spaced] : [plain]).map(ids => ({
      before: ids.slice(0, -1),
      last: ids.at(-1)!,
    }));
  });
}
