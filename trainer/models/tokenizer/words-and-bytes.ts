import type { JsonObject } from '../../../shared/json.ts';
import type { DecodeOptions, SpecialTokenNames, TextCoder } from './tokenizer.ts';

/** True where a `tokenizer.json` holds a word-level model. */
export function isWordLevel(model: JsonObject): boolean {
  return (model.model as JsonObject | undefined)?.type === 'WordLevel';
}

/**
 * A word-level tokenizer from its `tokenizer.json`: the text is split at the matches of the pre-tokenizer's pattern and
 * each piece is one token. Pieces without a match become the unknown token. Decoding joins the tokens with nothing
 * between them, so known text comes back exactly.
 */
export class WordTokenizer implements TextCoder {
  readonly vocabularySize: number;
  readonly longestToken = Number.POSITIVE_INFINITY;
  readonly words: ReadonlySet<number>;
  readonly #ids = new Map<string, number>();
  readonly #words: string[] = [];
  readonly #special = new Set<number>();
  readonly #unknown: number;
  readonly #pattern: RegExp;

  /** @throws Error for a special token that is no word */
  constructor(json: JsonObject, names: SpecialTokenNames) {
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
    this.words = new Set(this.#ids.values());
    for (const name of [names.eos_token, names.pad_token]) if (name !== undefined) this.#require(name);
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

const BYTES = 256;

/**
 * The character of each byte in the vocabulary of a byte-level `tokenizer.json`: printable bytes are themselves, the
 * others start at U+0100 (GPT-2's table).
 */
export const BYTE_CHARACTERS: readonly string[] = byteCharacters();

function byteCharacters(): string[] {
  const isPrintable = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let other = BYTES;
  return Array.from({ length: BYTES }, (_, byte) => String.fromCharCode(isPrintable(byte) ? byte : other++));
}

const MAPPED = new Set(BYTE_CHARACTERS);

/**
 * Whether a word may be one token next to bytes: of one byte it is that byte, and one that is written with the characters of bytes
 * above 127, such as `é`, would be read as these bytes by other libraries.
 */
export function isWordAmongBytes(word: string): boolean {
  const characters = Array.from(word);
  return (
    Buffer.byteLength(word) > 1 &&
    (characters.every(character => character < '\u0080') ||
      characters.some(character => !MAPPED.has(character)))
  );
}

/** True if a `tokenizer.json` holds bytes and added tokens, each with its own id, and no merges. */
export function isByteLevel({
  model,
  normalizer,
  pre_tokenizer,
  decoder,
  added_tokens,
}: JsonObject): boolean {
  const { type, merges, vocab, ignore_merges, continuing_subword_prefix, end_of_word_suffix } = (model ??
    {}) as JsonObject;
  const cut = (pre_tokenizer ?? {}) as JsonObject;
  const added = (added_tokens ?? []) as readonly JsonObject[];
  const ids = new Map(Object.entries((vocab ?? {}) as JsonObject));
  const isPlain = added.every(({ content, lstrip, rstrip }) => content !== '' && !lstrip && !rstrip);
  for (const { content, id } of added) ids.set(String(content), id);
  return (
    type === 'BPE' &&
    Array.isArray(merges) &&
    merges.length === 0 &&
    !ignore_merges &&
    !continuing_subword_prefix &&
    !end_of_word_suffix &&
    BYTE_CHARACTERS.every(character => ids.has(character)) &&
    ids.size === BYTE_CHARACTERS.length + added.length &&
    new Set(ids.values()).size === ids.size &&
    (normalizer ?? null) === null &&
    cut.type === 'ByteLevel' &&
    cut.add_prefix_space === false &&
    cut.use_regex === false &&
    ((decoder ?? {}) as JsonObject).type === 'ByteLevel' &&
    isPlain
  );
}

/**
 * A byte-level tokenizer from its `tokenizer.json`: added tokens are found first, the longest at each place, and all
 * other text becomes a token for each byte of its UTF-8. It can write any text. It gives the ids of
 * @huggingface/tokenizers; the general BPE takes thirty times as long. Bytes that are not UTF-8 are decoded to U+FFFD.
 */
export class ByteTokenizer implements TextCoder {
  readonly vocabularySize: number;
  readonly longestToken: number;
  readonly words: ReadonlySet<number>;
  /** Id of each byte. */
  readonly #byteIds: Int32Array;
  /** Byte of each id, −1 where it is an added token. */
  readonly #bytes: Int16Array;
  readonly #added = new Map<string, number>();
  readonly #texts = new Map<number, string>();
  readonly #special = new Set<number>();
  readonly #pattern: RegExp | undefined;
  readonly #encoder = new TextEncoder();
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });

  constructor(json: JsonObject) {
    const vocab = (json.model as JsonObject).vocab as { readonly [token: string]: number };
    this.#byteIds = Int32Array.from(BYTE_CHARACTERS, character => vocab[character]);
    for (const { content, id, special } of (json.added_tokens ?? []) as readonly JsonObject[]) {
      this.#added.set(String(content), Number(id));
      this.#texts.set(Number(id), String(content));
      if (special) this.#special.add(Number(id));
    }
    this.vocabularySize = Math.max(...this.#byteIds, ...this.#texts.keys()) + 1;
    this.#bytes = new Int16Array(this.vocabularySize).fill(-1);
    this.#byteIds.forEach((id, byte) => {
      this.#bytes[id] = byte;
    });
    this.words = new Set(this.#added.values());
    this.longestToken = Math.max(1, ...[...this.#added.keys()].map(content => content.length));
    this.#pattern =
      this.#added.size === 0 ? undefined : new RegExp(longestFirst([...this.#added.keys()]), 'gu');
  }

  encode(text: string): number[] {
    const ids: number[] = [];
    let done = 0;
    for (const match of this.#pattern ? text.matchAll(this.#pattern) : []) {
      this.#pushBytes(ids, text.slice(done, match.index));
      ids.push(this.#added.get(match[0])!);
      done = match.index + match[0].length;
    }
    this.#pushBytes(ids, text.slice(done));
    return ids;
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    const parts: string[] = [];
    let bytes: number[] = [];
    const flush = () => {
      if (bytes.length > 0) parts.push(this.#decoder.decode(Uint8Array.from(bytes)));
      bytes = [];
    };
    for (let i = 0; i < ids.length; i++) {
      const byte = this.#bytes[ids[i]];
      if (byte >= 0) {
        bytes.push(byte);
        continue;
      }
      if (options.skipSpecial && this.#special.has(ids[i])) continue;
      flush();
      const text = this.#texts.get(ids[i]);
      if (text === undefined) {
        throw new RangeError(`token id ${ids[i]} is not in the vocabulary of ${this.vocabularySize} tokens`);
      }
      parts.push(text);
    }
    flush();
    return parts.join('');
  }

  idOf(token: string): number | undefined {
    const added = this.#added.get(token);
    if (added !== undefined) return added;
    const code = token.length === 1 ? token.charCodeAt(0) : BYTES;
    return code < 0x80 ? this.#byteIds[code] : undefined;
  }

  #pushBytes(ids: number[], text: string): void {
    if (text === '') return;
    for (const byte of this.#encoder.encode(text)) ids.push(this.#byteIds[byte]);
  }
}
