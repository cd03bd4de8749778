import { join } from 'node:path';
import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import { isObject, type Json, type JsonObject, jsonOf } from '../../../shared/json.ts';
import { readModelTextIfThere } from '../files/model-file.ts';
import {
  ChatTemplate,
  type DecodeOptions,
  type SpecialTokenNames,
  type TextCoder,
  type Tokenizer,
} from './tokenizer.ts';
import { ByteTokenizer, isByteLevel, isWordLevel, WordTokenizer } from './words-and-bytes.ts';

export const TOKENIZER_FILE = 'tokenizer.json';
export const TOKENIZER_CONFIG_FILE = 'tokenizer_config.json';
export const CHAT_TEMPLATE_FILE = 'chat_template.jinja';
export const GENERATION_CONFIG_FILE = 'generation_config.json';

/**
 * Reads a tokenizer from a folder in the Hugging Face layout.
 * @throws Error naming the file that is missing or broken
 */
export async function loadTokenizer(folder: string): Promise<Tokenizer> {
  return tokenizerFromFiles(await readTokenizerFiles(folder), folder);
}

/**
 * The contents of a tokenizer's files by name: `tokenizer.json`, and where present `tokenizer_config.json`,
 * `chat_template.jinja` and `generation_config.json`.
 * @throws Error naming the file that is missing or not a regular file
 */
export async function readTokenizerFiles(folder: string): Promise<{ readonly [name: string]: string }> {
  const tokenizer = await readModelTextIfThere(join(folder, TOKENIZER_FILE));
  if (tokenizer === undefined) {
    throw new Error(`${folder} has no ${TOKENIZER_FILE}: copy the tokenizer's files of the model there`);
  }
  const files: Record<string, string> = { [TOKENIZER_FILE]: tokenizer };
  for (const name of [TOKENIZER_CONFIG_FILE, CHAT_TEMPLATE_FILE, GENERATION_CONFIG_FILE]) {
    const text = await readModelTextIfThere(join(folder, name));
    if (text !== undefined) files[name] = text;
  }
  return files;
}

/**
 * A tokenizer from the contents of its files.
 * @param origin where the files come from, for errors
 */
export function tokenizerFromFiles(files: { readonly [name: string]: string }, origin: string): Tokenizer {
  const model = parse(files[TOKENIZER_FILE], `${origin}/${TOKENIZER_FILE}`);
  const config =
    files[TOKENIZER_CONFIG_FILE] === undefined
      ? {}
      : parse(files[TOKENIZER_CONFIG_FILE], `${origin}/${TOKENIZER_CONFIG_FILE}`);
  checkTokenizer(model, `${origin}/${TOKENIZER_FILE}`);
  const names = specialTokenNames(config);
  const source = files[CHAT_TEMPLATE_FILE] ?? chatTemplateOf(config);
  const coder: TextCoder = isWordLevel(model)
    ? new WordTokenizer(model, names)
    : isByteLevel(model)
      ? new ByteTokenizer(model)
      : named(`${origin}/${TOKENIZER_FILE}`, () => new SubwordTokenizer(model, config));
  const idOf = (name: string | undefined) => (name === undefined ? undefined : coder.idOf(name));
  return Object.assign(coder, {
    files,
    chatTemplate:
      source === undefined
        ? undefined
        : named(`the chat template of ${origin}`, () => new ChatTemplate(source, names)),
    eosTokenId: idOf(names.eos_token),
    padTokenId: idOf(names.pad_token),
  });
}

/** Runs a library on an untrusted file. @throws Error naming the file */
function named<T>(file: string, make: () => T): T {
  try {
    return make();
  } catch (error) {
    throw new Error(`${file} cannot be used: ${(error as Error).message}`, { cause: error });
  }
}

/** BPE, WordPiece and Unigram, through @huggingface/tokenizers. */
class SubwordTokenizer implements TextCoder {
  readonly vocabularySize: number;
  readonly longestToken: number;
  readonly words: ReadonlySet<number>;
  readonly #hub: HubTokenizer;

  constructor(model: JsonObject, config: JsonObject) {
    this.#hub = new HubTokenizer(withUnicodeDigits(model), config);
    let greatest = -1;
    let longest = 0;
    for (const [token, id] of this.#hub.get_vocab()) {
      greatest = Math.max(greatest, id);
      longest = Math.max(longest, token.length);
    }
    this.vocabularySize = greatest + 1;
    this.longestToken = longest;
    const added = (model.added_tokens ?? []) as readonly JsonObject[];
    this.words = new Set(added.map(({ id }) => Number(id)));
  }

  encode(text: string): number[] {
    return this.#hub.encode(text, { add_special_tokens: false }).ids;
  }

  decode(ids: ArrayLike<number>, options: DecodeOptions = {}): string {
    if (ids.length === 0) return '';
    return this.#hub.decode(Array.from(ids), {
      skip_special_tokens: options.skipSpecial ?? false,
      clean_up_tokenization_spaces: false,
    });
  }

  idOf(token: string): number | undefined {
    return this.#hub.token_to_id(token);
  }
}

/**
 * Replaces pre-tokenizers of the type `Digits` by splits at numbers of every script, as in Python:
 * @huggingface/tokenizers only knows ASCII digits.
 */
function withUnicodeDigits(model: JsonObject): JsonObject {
  const replaced = (part: Json | undefined): Json => {
    const { type, individual_digits, pretokenizers } = (part ?? {}) as JsonObject;
    if (type === 'Sequence' && Array.isArray(pretokenizers)) {
      return { type, pretokenizers: pretokenizers.map(replaced) };
    }
    if (type !== 'Digits') return part ?? null;
    const pattern = { Regex: individual_digits === true ? '\\p{N}' : '\\p{N}+' };
    return { type: 'Split', pattern, behavior: 'Isolated', invert: false };
  };
  return { ...model, pre_tokenizer: replaced(model.pre_tokenizer) };
}

/**
 * Ids that end a response besides `eos_token`, from the `generation_config.json` next to the tokenizer.
 * @throws Error naming the file if it is broken
 */
export function endTokenIds({ files }: Pick<Tokenizer, 'files'>): readonly number[] {
  const text = files[GENERATION_CONFIG_FILE];
  if (text === undefined) return [];
  const ids = [parse(text, GENERATION_CONFIG_FILE).eos_token_id ?? []].flat();
  return ids.filter(id => typeof id === 'number');
}

function specialTokenNames(config: JsonObject): SpecialTokenNames {
  const name = (key: string): string | undefined => {
    const value = config[key];
    if (typeof value === 'string') return value;
    if (value !== null && typeof value === 'object' && 'content' in value) return String(value.content);
    return undefined;
  };
  return {
    bos_token: name('bos_token'),
    eos_token: name('eos_token'),
    pad_token: name('pad_token'),
    unk_token: name('unk_token'),
  };
}

/** The template inside `tokenizer_config.json`: a text, or the `default` of a named list. */
function chatTemplateOf(config: JsonObject): string | undefined {
  const value = config.chat_template;
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return undefined;
  for (const entry of value) {
    if (isObject(entry) && entry.name === 'default') return String(entry.template);
  }
  return undefined;
}

function parse(text: string, file: string): JsonObject {
  const value = jsonOf(text, reason => new Error(`${file} is not valid JSON: ${reason}`));
  if (!isObject(value)) throw new Error(`${file} must hold a JSON object`);
  return value;
}

/** Largest size of a vocabulary, sixteen times that of the largest published ones. */
const MAX_VOCABULARY = 2 ** 22;
/** Most added tokens: decoding searches them for each token. Published models have some thousands. */
const MAX_ADDED_TOKENS = 2 ** 14;
const MAX_DECODERS = 16;

/**
 * Rejects a `tokenizer.json` that `@huggingface/tokenizers` would encode to other ids than Python, and one that would
 * exhaust the memory or block the program: ids far beyond any vocabulary, decoders that match patterns or lengthen
 * texts. Patterns of encoding are not checked here: untrusted text is encoded on a thread with a time limit.
 * @throws Error naming the file and the part
 */
function checkTokenizer(tokenizer: JsonObject, file: string): void {
  const model = objectOr(tokenizer.model, {});
  if (model.type === 'Unigram' && model.byte_fallback === true) {
    throw new Error(
      `${file}: a Unigram model with byte_fallback is not supported; BPE with byte_fallback is`,
    );
  }
  if (model.type !== 'Unigram') {
    for (const [token, id] of Object.entries(objectOr(model.vocab, {}))) checkId(token, id, file);
  }
  checkAddedTokens(tokenizer.added_tokens ?? [], file);
  checkDecoders(tokenizer.decoder, file);
}

function checkAddedTokens(added: unknown, file: string): void {
  if (!Array.isArray(added) || added.length > MAX_ADDED_TOKENS) {
    throw new Error(`${file}: added_tokens must be a list of at most ${MAX_ADDED_TOKENS} tokens`);
  }
  for (const entry of added) {
    const { content, id, single_word } = objectOr(entry, {});
    if (typeof content !== 'string') {
      throw new Error(`${file}: an added token must have its text as content, got ${JSON.stringify(entry)}`);
    }
    checkId(content, id, file);
    if (single_word !== true) continue;
    throw new Error(
      `${file}: the added token ${JSON.stringify(content)} is single_word, which is not supported`,
    );
  }
}

function checkId(token: string, id: unknown, file: string): void {
  if (Number.isInteger(id) && (id as number) >= 0 && (id as number) < MAX_VOCABULARY) return;
  throw new Error(
    `${file}: the id of the token ${JSON.stringify(token)} must be an integer from 0 to ${MAX_VOCABULARY - 1}, got ${JSON.stringify(id)}`,
  );
}

/**
 * Responses are decoded in the program itself, token by token: the time and memory of each decoder must be bounded by
 * the tokens' lengths.
 */
function checkDecoders(decoder: unknown, file: string): void {
  const open: unknown[] = [decoder];
  let count = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next === null) continue;
    count++;
    const { type, decoders, pattern, content, replacement, suffix } = objectOr(next, {});
    if (count > MAX_DECODERS || (decoders !== undefined && !Array.isArray(decoders))) {
      throw new Error(`${file}: decoder must be a decoder, or a sequence of at most ${MAX_DECODERS}`);
    }
    open.push(...((decoders as unknown[] | undefined) ?? []));
    const replaced = objectOr(pattern, {}).String;
    const lengthens =
      (type === 'Replace' &&
        (typeof replaced !== 'string' || replaced.length < String(content ?? '').length)) ||
      (type === 'Metaspace' && replacement === '') ||
      (type === 'BPEDecoder' && suffix === '');
    if (!lengthens) continue;
    throw new Error(
      `${file}: the decoder ${JSON.stringify(next).slice(0, 200)} is not supported: a decoder may replace a text by one that is not longer`,
    );
  }
}

const objectOr = (value: unknown, fallback: JsonObject): JsonObject => (isObject(value) ? value : fallback);
