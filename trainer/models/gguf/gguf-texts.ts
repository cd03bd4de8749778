import type { FileHandle } from 'node:fs/promises';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { configOf } from './architectures.ts';
import { GgufError, type GgufHeader, readGgufHeader } from './gguf-file.ts';
import { readRopeFactors } from './gguf-weights.ts';

type Texts = { readonly [name: string]: string };

/** The file that was read last; callers request one text after the other. */
let last: { readonly key: string; readonly texts: Promise<Texts> } | null = null;

/** True if a path has the name of a GGUF file. */
export function isGgufName(path: string): boolean {
  return path.toLowerCase().endsWith('.gguf');
}

/**
 * The text files that a model's folder in the Hugging Face layout would have: `config.json` and those of its tokenizer.
 * @throws GgufError for a file that is broken or not supported
 */
export async function textsOfGguf(handle: FileHandle, path: string): Promise<Texts> {
  const { dev, ino, size, mtimeMs } = await handle.stat();
  const key = [path, dev, ino, size, mtimeMs].join(':');
  if (last?.key !== key) last = { key, texts: readTexts(handle, path) };
  const { texts } = last;
  // The next request tries again.
  texts.catch(() => (last = null));
  return texts;
}

async function readTexts(handle: FileHandle, path: string): Promise<Texts> {
  const header = await readGgufHeader(handle, path);
  const config = configOf(header, await readRopeFactors(handle, header));
  return { 'config.json': `${JSON.stringify(config, null, 2)}\n`, ...tokenizerFilesOf(header) };
}

/** Kinds of tokens, as llama.cpp numbers them. */
const CONTROL = 3;
const USER_DEFINED = 4;
const UNUSED = 5;
const MAX_TOKENS = 2 ** 22;
/** Longest token that is tried as a merge of two; the longest of published models have about 100 characters. */
const MAX_MERGED = 1024;

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const REST = ' ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const WORDS_AND_NUMBERS = (digits: string) =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}|${REST}`;
const [UPPER, LOWER] = ['[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]', '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]'];
/**
 * Words as lower-case letters with capitals in front.
 * @param after characters that may follow a word
 */
const CASED_WORDS = (after: string, digits: string) =>
  `[^\\r\\n\\p{L}\\p{N}]?${UPPER}*${LOWER}+${after}|[^\\r\\n\\p{L}\\p{N}]?${UPPER}+${LOWER}*${after}|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

const bytes = (useRegex: boolean): JsonObject => ({
  type: 'ByteLevel',
  add_prefix_space: false,
  trim_offsets: true,
  use_regex: useRegex,
});
const split = (Regex: string): JsonObject => ({
  type: 'Split',
  pattern: { Regex },
  behavior: 'Isolated',
  invert: false,
});
const bySplit = (pattern: string): readonly JsonObject[] => [split(pattern), bytes(false)];

/** Pre-tokenizers by `tokenizer.ggml.pre`, as in the models' own `tokenizer.json`. */
const PRE_TOKENIZERS: Readonly<
  Record<string, { parts: readonly JsonObject[]; nfc?: boolean; ignoreMerges?: boolean }>
> = {
  'gpt-2': { parts: [bytes(true)] },
  smollm: { parts: [{ type: 'Digits', individual_digits: true }, bytes(true)] },
  'llama-bpe': { parts: bySplit(WORDS_AND_NUMBERS('\\p{N}{1,3}')), ignoreMerges: true },
  dbrx: { parts: bySplit(WORDS_AND_NUMBERS('\\p{N}{1,3}')) },
  'smaug-bpe': { parts: bySplit(WORDS_AND_NUMBERS('\\p{N}{1,3}')) },
  qwen2: { parts: bySplit(WORDS_AND_NUMBERS('\\p{N}')), nfc: true },
  tekken: { parts: bySplit(CASED_WORDS('', '\\p{N}')), ignoreMerges: true },
  'gpt-4o': { parts: bySplit(CASED_WORDS(`${CONTRACTIONS}?`, '\\p{N}{1,3}')) },
};

/**
 * The files of a Hugging Face tokenizer: `tokenizer.json`, `tokenizer_config.json` with the chat template, and
 * `generation_config.json` with the ids that end a response.
 * @throws GgufError naming a tokenizer that is not supported, or the list that does not fit
 */
export function tokenizerFilesOf(header: GgufHeader): { readonly [name: string]: string } {
  const { path, metadata } = header;
  const kind = metadata.get('tokenizer.ggml.model');
  const tokens = texts(header, 'tokenizer.ggml.tokens');
  if (tokens.length > MAX_TOKENS) throw new GgufError(`${path}: ${tokens.length} tokens, most ${MAX_TOKENS}`);
  const kinds = metadata.get('tokenizer.ggml.token_type');
  if (typeof kinds !== 'object' || kinds.length !== tokens.length) {
    throw new GgufError(`${path}: tokenizer.ggml.token_type must have a number for each token`);
  }
  const vocabulary = new Map<string, number>();
  const added: JsonObject[] = [];
  for (const [id, content] of tokens.entries()) {
    if (kinds[id] === UNUSED) continue;
    if (vocabulary.has(content)) {
      throw new GgufError(`${path}: the token ${JSON.stringify(content)} is there twice`);
    }
    vocabulary.set(content, id);
    if (kinds[id] !== CONTROL && kinds[id] !== USER_DEFINED) continue;
    const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false };
    added.push({ id, content, ...plain, special: kinds[id] === CONTROL });
  }
  const parts =
    kind === 'gpt2'
      ? byteLevel(header)
      : kind === 'llama'
        ? sentencePiece(header, tokens, vocabulary)
        : undefined;
  if (parts === undefined) {
    throw new GgufError(
      `${path}: tokenizer.ggml.model ${JSON.stringify(kind)} is not supported; supported: gpt2 (BPE), llama (SentencePiece)`,
    );
  }
  const { model, ...others } = parts;
  const named = (key: string) => tokens[Number(metadata.get(`tokenizer.ggml.${key}_token_id`))];
  const template = metadata.get('tokenizer.chat_template');
  const ends = ['eos', 'eot', 'eom'].map(key => metadata.get(`tokenizer.ggml.${key}_token_id`));
  const json = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: added,
    ...others,
    post_processor: null,
    // From entries: a token may be called __proto__.
    model: { type: 'BPE', dropout: null, ...model, vocab: Object.fromEntries(vocabulary) },
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    bos_token: named('bos'),
    eos_token: named('eos'),
    pad_token: named('padding'),
    unk_token: named('unknown'),
    clean_up_tokenization_spaces: false,
    ...(typeof template === 'string' ? { chat_template: template } : {}),
  };
  return {
    'tokenizer.json': JSON.stringify(json),
    'tokenizer_config.json': `${JSON.stringify(config, null, 1)}\n`,
    'generation_config.json': `${JSON.stringify({ eos_token_id: [...new Set(ends.filter(id => typeof id === 'number'))] })}\n`,
  };
}

interface TokenizerParts {
  readonly normalizer: Json;
  readonly pre_tokenizer: Json;
  readonly decoder: Json;
  /** Fields of the BPE model besides its vocabulary. */
  readonly model: JsonObject;
}

function byteLevel(header: GgufHeader): TokenizerParts {
  const name = header.metadata.get('tokenizer.ggml.pre');
  if (typeof name !== 'string' || !Object.hasOwn(PRE_TOKENIZERS, name)) {
    throw new GgufError(
      `${header.path}: tokenizer.ggml.pre ${JSON.stringify(name) ?? 'is missing and'} is not supported; supported: ${Object.keys(PRE_TOKENIZERS).join(', ')}`,
    );
  }
  const { parts, nfc = false, ignoreMerges = false } = PRE_TOKENIZERS[name];
  return {
    normalizer: nfc ? { type: 'NFC' } : null,
    pre_tokenizer: parts.length === 1 ? parts[0] : ({ type: 'Sequence', pretokenizers: parts } as JsonObject),
    decoder: { ...bytes(true), add_prefix_space: true },
    model: {
      unk_token: null,
      byte_fallback: false,
      fuse_unk: false,
      ignore_merges: ignoreMerges,
      merges: texts(header, 'tokenizer.ggml.merges'),
    },
  };
}

/** SentencePiece's BPE: it first merges the pair with the best-scored result, so the scores order the merges. */
function sentencePiece(
  header: GgufHeader,
  tokens: readonly string[],
  vocabulary: ReadonlyMap<string, number>,
): TokenizerParts {
  const scores = header.metadata.get('tokenizer.ggml.scores');
  if (typeof scores !== 'object' || scores.length !== tokens.length) {
    throw new GgufError(`${header.path}: tokenizer.ggml.scores must have a number for each token`);
  }
  const score = scores as ArrayLike<number>;
  const ordered = [...vocabulary.entries()].sort(([, a], [, b]) => score[b] - score[a] || a - b);
  const merges = ordered.flatMap(([token]) => {
    if (token.length > MAX_MERGED) return [];
    const pairs: [string, string][] = [];
    for (let at = 1; at < token.length; at++) {
      const pair: [string, string] = [token.slice(0, at), token.slice(at)];
      if (vocabulary.has(pair[0]) && vocabulary.has(pair[1])) pairs.push(pair);
    }
    const rank = ([a, b]: [string, string]) => [score[vocabulary.get(a)!], score[vocabulary.get(b)!]];
    return pairs.sort((a, b) => rank(b)[0] - rank(a)[0] || rank(b)[1] - rank(a)[1]);
  });
  const prefixed = header.metadata.get('tokenizer.ggml.add_space_prefix') !== false;
  const spaces = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const unknown = header.metadata.get('tokenizer.ggml.unknown_token_id');
  return {
    normalizer: prefixed
      ? { type: 'Sequence', normalizers: [{ type: 'Prepend', prepend: '▁' }, spaces] }
      : spaces,
    pre_tokenizer: null,
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: '▁' }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        ...(prefixed ? [{ type: 'Strip', content: ' ', start: 1, stop: 0 }] : []),
      ],
    },
    model: {
      unk_token: typeof unknown === 'number' ? (tokens[unknown] ?? null) : null,
      byte_fallback: true,
      fuse_unk: true,
      ignore_merges: false,
      merges,
    },
  };
}

function texts({ path, metadata }: GgufHeader, key: string): readonly string[] {
  const value = metadata.get(key);
  if (Array.isArray(value) && value.every(entry => typeof entry === 'string')) return value;
  throw new GgufError(`${path}: ${key} must be a list of texts`);
}
