import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GENERATION_CONFIG_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, tokenizerFromFiles } from './load.ts';
import type { Tokenizer } from './tokenizer.ts';

export const PAD_TOKEN = '<pad>';
export const UNKNOWN_TOKEN = '<unk>';
export const EOS_TOKEN = '<eos>';

/**
 * Makes a word-level tokenizer whose tokens are the given words and three special ones, in the Hugging Face layout
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
  const unique = new Set<string>();
  for (const word of words) {
    if (word === '') throw new Error('a word of the vocabulary is empty');
    if (special.includes(word)) throw new Error(`${word} is a special token and cannot be a word`);
    unique.add(word);
  }
  const vocabulary: Record<string, number> = {};
  for (const word of [...special, ...unique]) vocabulary[word] = Object.keys(vocabulary).length;

  const model = {
    version: '1.0',
    truncation: null,
    padding: null,
    added_tokens: special.map((content, id) => ({
      id,
      content,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
      special: true,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Split',
      pattern: { Regex: wordPattern([...special, ...unique]) },
      behavior: 'Isolated',
      invert: false,
    },
    post_processor: null,
    decoder: { type: 'Fuse' },
    model: { type: 'WordLevel', vocab: vocabulary, unk_token: UNKNOWN_TOKEN },
  };
  const config = {
    tokenizer_class: 'PreTrainedTokenizerFast',
    eos_token: EOS_TOKEN,
    pad_token: PAD_TOKEN,
    unk_token: UNKNOWN_TOKEN,
    clean_up_tokenization_spaces: false,
  };
  const generation = { eos_token_id: vocabulary[EOS_TOKEN], pad_token_id: vocabulary[PAD_TOKEN] };
  return tokenizerFromFiles(
    {
      [TOKENIZER_FILE]: `${JSON.stringify(model, null, 1)}\n`,
      [TOKENIZER_CONFIG_FILE]: `${JSON.stringify(config, null, 1)}\n`,
      [GENERATION_CONFIG_FILE]: `${JSON.stringify(generation)}\n`,
    },
    'word tokenizer',
  );
}

/** Writes a tokenizer's files into a folder, which is made where it is missing. */
export async function saveTokenizer(tokenizer: Tokenizer, folder: string): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const [name, text] of Object.entries(tokenizer.files)) await writeFile(join(folder, name), text);
}

function wordPattern(words: readonly string[]): string {
  const longestFirst = words.toSorted((a, b) => b.length - a.length || (a < b ? -1 : 1));
  return longestFirst.map(word => word.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&')).join('|');
}
