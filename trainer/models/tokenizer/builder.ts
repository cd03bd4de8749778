import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { BYTE_CHARACTERS, isWordAmongBytes } from './byte-tokenizer.ts';
import { GENERATION_CONFIG_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, tokenizerFromFiles } from './load.ts';
import { MERGED_PIECE, type Merge } from './merges.ts';
import type { Tokenizer } from './tokenizer.ts';
import { isWordLevel, longestFirst } from './word-tokenizer.ts';

const PAD_TOKEN = '<pad>';
const UNKNOWN_TOKEN = '<unk>';
const EOS_TOKEN = '<eos>';

/**
 * Makes a word-level tokenizer with the given words and three special ones as its tokens, in the Hugging Face layout
 * (transformers loads it as `PreTrainedTokenizerFast`). Words are matched longest first, so that `Up` wins over `U`.
 * Repeated words count once; ids follow the order given.
 * @throws Error when a word is empty or the name of a special token
 *
 * @example
 * const tokenizer = buildWordTokenizer(['#', '_', 'P', 'Up', 'Down', '||']);
 * tokenizer.decode(tokenizer.encode('#P_Up||Down')); // '#P_Up||Down'
 */
export function buildWordTokenizer(words: Iterable<string>): Tokenizer {
  const special = [PAD_TOKEN, UNKNOWN_TOKEN, EOS_TOKEN];
  const unique = distinctWords(words);
  const vocabulary: Record<string, number> = {};
  for (const word of [...special, ...unique]) vocabulary[word] = Object.keys(vocabulary).length;

  const model = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: special.map((content, id) => addedToken(content, id, true)),
    normalizer: null,
    pre_tokenizer: {
      type: 'Split',
      pattern: { Regex: longestFirst([...special, ...unique]) },
      behavior: 'Isolated',
      invert: false,
    },
    post_processor: null,
    decoder: { type: 'Fuse' },
    model: { type: 'WordLevel', vocab: vocabulary, unk_token: UNKNOWN_TOKEN },
  };
  return builtTokenizer(model, vocabulary, { unk_token: UNKNOWN_TOKEN });
}

/**
 * Makes a tokenizer that writes every text: a token for each of the 256 bytes of UTF-8 (id = byte), the special tokens, and the
 * given words as one token each, in the Hugging Face layout.
 * @param words tags of the prompt, names of actions; those that {@link isWordAmongBytes} refuses are spelled in bytes
 * @param merges further tokens, each of two others: byte-level BPE
 * @throws Error when a word is empty or the name of a special token
 *
 * @example
 * const tokenizer = buildByteTokenizer(['<answer>', '</answer>', 'Higher']);
 * tokenizer.encode('Higher!'); // [260, 33]
 */
export function buildByteTokenizer(words: Iterable<string>, merges: readonly Merge[] = []): Tokenizer {
  const longer = [...distinctWords(words)].filter(isWordAmongBytes);
  const special = [PAD_TOKEN, EOS_TOKEN];
  const vocabulary: Record<string, number> = {};
  const tokens = new Set([...BYTE_CHARACTERS, ...special, ...merges.map(merge => merge.join(''))]);
  for (const [id, content] of [...tokens].entries()) vocabulary[content] = id;
  let next = tokens.size;
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false };
  const pieces = { type: 'Split', pattern: { Regex: MERGED_PIECE }, behavior: 'Isolated', invert: false };
  const model = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: [
      ...special.map((content, i) => addedToken(content, BYTE_CHARACTERS.length + i, true)),
      ...longer.map(content =>
        addedToken(content, tokens.has(content) ? vocabulary[content] : next++, false),
      ),
    ],
    normalizer: null,
    pre_tokenizer: merges.length === 0 ? bytes : { type: 'Sequence', pretokenizers: [pieces, bytes] },
    post_processor: null,
    decoder: bytes,
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: false,
      vocab: vocabulary,
      merges: merges.map(merge => merge.join(' ')),
    },
  };
  return builtTokenizer(model, vocabulary, {});
}

/**
 * A given tokenizer, with missing words as additional tokens.
 * @throws Error where it finds words by a pattern, as word-level ones do
 */
export function withWords(tokenizer: Tokenizer, words: Iterable<string>, origin: string): Tokenizer {
  const text = tokenizer.files[TOKENIZER_FILE];
  const missing = [...distinctWords(words)].filter(word => {
    const ids = tokenizer.encode(word);
    return isWordAmongBytes(word) && (ids.length !== 1 || tokenizer.decode(ids) !== word);
  });
  if (missing.length === 0) return tokenizer;
  const json = JSON.parse(text);
  if (isWordLevel(json)) {
    throw new Error(
      `${origin}: this word-level tokenizer lacks ${missing.slice(0, 5).join(' ')}, which the prompt is made of: use policy.tokenizer: bytes, or words`,
    );
  }
  const added = missing.map((content, i) => addedToken(content, tokenizer.vocabularySize + i, false));
  const files = {
    ...tokenizer.files,
    [TOKENIZER_FILE]: JSON.stringify({ ...json, added_tokens: [...(json.added_tokens ?? []), ...added] }),
  };
  return tokenizerFromFiles(files, origin);
}

/** @throws Error when a word is empty or the name of a special token */
function distinctWords(words: Iterable<string>): Set<string> {
  const unique = new Set<string>();
  for (const word of words) {
    if (word === '') throw new Error('a word of the vocabulary is empty');
    if ([PAD_TOKEN, UNKNOWN_TOKEN, EOS_TOKEN].includes(word)) {
      throw new Error(`${word} is a special token and cannot be a word`);
    }
    unique.add(word);
  }
  return unique;
}

const addedToken = (content: string, id: number, special: boolean) => ({
  id,
  content,
  single_word: false,
  lstrip: false,
  rstrip: false,
  normalized: false,
  special,
});

function builtTokenizer(
  model: object,
  vocabulary: { readonly [token: string]: number },
  names: { readonly [role: string]: string },
): Tokenizer {
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    eos_token: EOS_TOKEN,
    pad_token: PAD_TOKEN,
    ...names,
    clean_up_tokenization_spaces: false,
  };
  const generation = { eos_token_id: vocabulary[EOS_TOKEN], pad_token_id: vocabulary[PAD_TOKEN] };
  return tokenizerFromFiles(
    {
      [TOKENIZER_FILE]: `${JSON.stringify(model, null, 1)}\n`,
      [TOKENIZER_CONFIG_FILE]: `${JSON.stringify(config, null, 1)}\n`,
      [GENERATION_CONFIG_FILE]: `${JSON.stringify(generation)}\n`,
    },
    'built tokenizer',
  );
}

/** Writes a tokenizer's files into a folder, which is made where it is missing. */
export async function saveTokenizer(tokenizer: Tokenizer, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const [name, text] of Object.entries(tokenizer.files)) await writeFile(join(folder, name), text);
}
