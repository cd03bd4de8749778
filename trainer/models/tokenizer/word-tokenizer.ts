import type { JsonObject } from '../../../shared/json.ts';
import type { ChatTemplate } from './chat-template.ts';
import type { DecodeOptions, SpecialTokenNames, Tokenizer } from './tokenizer.ts';

/** True where a `tokenizer.json` holds a word-level model. */
export function isWordLevel(model: JsonObject): boolean {
  return (model.model as JsonObject | undefined)?.type === 'WordLevel';
}

/**
 * A word-level tokenizer from its `tokenizer.json`: the text is split at the matches of the pre-tokenizer's pattern and
 * each piece is one token. Pieces without a match become the unknown token. Decoding joins the tokens with nothing
 * between them, so known text comes back exactly.
 */
export class WordTokenizer implements Tokenizer {
  readonly vocabularySize: number;
  readonly longestToken = Number.POSITIVE_INFINITY;
  readonly eosTokenId?: number;
  readonly bosTokenId?: number;
  readonly padTokenId?: number;
  readonly chatTemplate?: ChatTemplate;
  readonly files: { readonly [name: string]: string };
  readonly #ids = new Map<string, number>();
  readonly #words: string[] = [];
  readonly #special = new Set<number>();
  readonly #unknown: number;
  readonly #pattern: RegExp;

  constructor(
    json: JsonObject,
    names: SpecialTokenNames,
    files: { readonly [name: string]: string },
    chatTemplate?: ChatTemplate,
  ) {
    const model = json.model as JsonObject;
    for (const [word, id] of Object.entries(model.vocab as { readonly [word: string]: number })) {
      this.#ids.set(word, id);
      this.#words[id] = word;
    }
    for (const added of (json.added_tokens ?? []) as readonly JsonObject[]) {
      this.#ids.set(String(added.content), Number(added.id));
      this.#words[Number(added.id)] = String(added.content);
      if (added.special) this.#special.add(Number(added.id));
    }
    this.#unknown = this.#require(String(model.unk_token));
    this.#pattern = splitPattern(json.pre_tokenizer as JsonObject | null);
    this.vocabularySize = this.#words.length;
    this.files = files;
    this.chatTemplate = chatTemplate;
    if (names.eos_token !== undefined) this.eosTokenId = this.#require(names.eos_token);
    if (names.bos_token !== undefined) this.bosTokenId = this.#require(names.bos_token);
    if (names.pad_token !== undefined) this.padTokenId = this.#require(names.pad_token);
  }

  encode(text: string): number[] {
    const ids: number[] = [];
    let done = 0;
    for (const match of text.matchAll(this.#pattern)) {
      if (match.index > done) ids.push(this.#unknown);
      ids.push(this.#ids.get(match[0]) ?? this.#unknown);
      done = match.index + match[0].length;
    }
    if (done < text.length) ids.push(this.#unknown);
    return ids;
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    let text = '';
    for (let i = 0; i < ids.length; i++) {
      if (options.skipSpecial && this.#special.has(ids[i])) continue;
      const word = this.#words[ids[i]];
      if (word === undefined) {
        throw new RangeError(`token id ${ids[i]} is not in the vocabulary of ${this.vocabularySize} words`);
      }
      text += word;
    }
    return text;
  }

  idOf(token: string): number | undefined {
    return this.#ids.get(token);
  }

  #require(word: string): number {
    const id = this.#ids.get(word);
    if (id === undefined) throw new Error(`the word-level vocabulary lacks its special token ${word}`);
    return id;
  }
}

/** The source of a pattern that matches the longest of the words at each place. */
export function longestFirst(words: readonly string[]): string {
  const ordered = words.toSorted((a, b) => b.length - a.length || (a < b ? -1 : 1));
  return ordered.map(word => word.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|');
}

function splitPattern(preTokenizer: JsonObject | null): RegExp {
  const pattern = (preTokenizer?.pattern as JsonObject | undefined)?.Regex;
  if (preTokenizer?.type !== 'Split' || preTokenizer.behavior !== 'Isolated' || typeof pattern !== 'string') {
    throw new Error(
      `a word-level tokenizer.json needs the pre-tokenizer {"type":"Split","pattern":{"Regex":…},"behavior":"Isolated"}, ` +
        `got ${JSON.stringify(preTokenizer)}`,
    );
  }
  return new RegExp(pattern, 'gu');
}
