import { join } from 'node:path';
import { Tokenizer as HubTokenizer } from '@huggingface/tokenizers';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { readModelTextIfThere } from '../files/model-file.ts';
import { ByteTokenizer, isByteLevel } from './byte-tokenizer.ts';
import { ChatTemplate } from './chat-template.ts';
import { checkTokenizer } from './check-tokenizer.ts';
import type { DecodeOptions, SpecialTokenNames, Tokenizer } from './tokenizer.ts';
import { isWordLevel, WordTokenizer } from './word-tokenizer.ts';

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
 * @throws Error naming the file that is missing or no ordinary file
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
  const chatTemplate = source === undefined ? undefined : new ChatTemplate(source, names);
  if (isWordLevel(model)) return new WordTokenizer(model, names, files, chatTemplate);
  return isByteLevel(model)
    ? new ByteTokenizer(model, names, files, chatTemplate)
    : new SubwordTokenizer(model, config, names, files, chatTemplate);
}

/** BPE, WordPiece and Unigram, through @huggingface/tokenizers. */
class SubwordTokenizer implements Tokenizer {
  readonly vocabularySize: number;
  readonly longestToken: number;
  readonly eosTokenId?: number;
  readonly bosTokenId?: number;
  readonly padTokenId?: number;
  readonly chatTemplate?: ChatTemplate;
  readonly files: { readonly [name: string]: string };
  readonly #hub: HubTokenizer;

  constructor(
    model: JsonObject,
    config: JsonObject,
    names: SpecialTokenNames,
    files: { readonly [name: string]: string },
    chatTemplate?: ChatTemplate,
  ) {
    this.#hub = new HubTokenizer(withUnicodeDigits(model), config);
    this.files = files;
    this.chatTemplate = chatTemplate;
    let greatest = -1;
    let longest = 0;
    for (const [token, id] of this.#hub.get_vocab()) {
      greatest = Math.max(greatest, id);
      longest = Math.max(longest, token.length);
    }
    this.vocabularySize = greatest + 1;
    this.longestToken = longest;
    this.eosTokenId = names.eos_token === undefined ? undefined : this.idOf(names.eos_token);
    this.bosTokenId = names.bos_token === undefined ? undefined : this.idOf(names.bos_token);
    this.padTokenId = names.pad_token === undefined ? undefined : this.idOf(names.pad_token);
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
 * The tokenizer with pre-tokenizers of the type `Digits` as splits at numbers of every script, as Python has them:
 * @huggingface/tokenizers knows those of ASCII alone.
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
 * Ids that end a response besides `eos_token`, as the `generation_config.json` next to the tokenizer names them.
 * @throws Error naming the file where it is broken
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

/** The template inside `tokenizer_config.json`: a text, or a list of named ones of which `default` is meant. */
function chatTemplateOf(config: JsonObject): string | undefined {
  const value = config.chat_template;
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return undefined;
  for (const entry of value as readonly JsonObject[]) {
    if (entry.name === 'default') return String(entry.template);
  }
  return undefined;
}

function parse(text: string, file: string): JsonObject {
  try {
    return JSON.parse(text) as JsonObject;
  } catch (error) {
    throw new Error(`${file} is not valid JSON: ${(error as Error).message}`, { cause: error });
  }
}
