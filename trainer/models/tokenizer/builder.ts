import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { GENERATION_CONFIG_FILE, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, tokenizerFromFiles } from './load.ts';
import type { Tokenizer } from './tokenizer.ts';
import { BYTE_CHARACTERS, isWordAmongBytes, isWordLevel, longestFirst } from './words-and-bytes.ts';

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

/** Tokens that are made of two others, at most. */
const MAX_MERGES = 512;
/**
 * Bytes of texts that are counted, and characters of each. Each merge shortens a piece, so bytes bound the work (about
 * a second) where a clock would give other merges on other machines.
 */
const MAX_BYTES = 2 ** 17;
const MAX_TEXT_CHARACTERS = 2 ** 14;
const LEAST_COUNT = 2;
/** Above any id, so that a pair is one number. */
const PAIR = 2 ** 16;

/**
 * A piece of text inside which tokens are merged: a digit, or at most 16 letters, other signs or white space. Every
 * character begins one of them, and no alternative takes what another could.
 */
const MERGED_PIECE = '\\p{N}| ?\\p{L}{1,16}| ?[^ \\t\\n\\r\\p{L}\\p{N}]{1,16}|[ \\t\\n\\r]{1,16}';

/** Two tokens, in the characters of their bytes, that become one. */
export type Merge = readonly [left: string, right: string];

/** A distinct piece of the texts, with its tokens and its count. */
interface Piece {
  ids: number[];
  readonly count: number;
}

/**
 * Learns byte-pair merges (Sennrich et al., arXiv 1508.07909): again and again the most frequent pair of tokens
 * becomes one token. Of equally frequent pairs the one with the lower ids is taken.
 * @param words text that is a token already
 */
export function learnMerges(texts: readonly string[], words: readonly string[]): Merge[] {
  const tokens = [...BYTE_CHARACTERS];
  const known = new Set(tokens);
  const counts = new Map<number, number>();
  const places = new Map<number, Set<Piece>>();
  const spelledOtherwise = new Set<number>();
  const count = (piece: Piece, sign: 1 | -1): void => {
    for (let i = 1; i < piece.ids.length; i++) {
      const pair = piece.ids[i - 1] * PAIR + piece.ids[i];
      if (spelledOtherwise.has(pair)) continue;
      const total = (counts.get(pair) ?? 0) + sign * piece.count;
      if (total === 0) counts.delete(pair);
      else counts.set(pair, total);
      const there = places.get(pair);
      if (there) there.add(piece);
      else places.set(pair, new Set([piece]));
    }
  };
  for (const piece of countedPieces(sampled(texts), words)) count(piece, 1);
  const merges: Merge[] = [];
  while (merges.length < MAX_MERGES) {
    const best = mostFrequent(counts);
    if (best === undefined) break;
    const [left, right] = [Math.floor(best / PAIR), best % PAIR];
    const token = tokens[left] + tokens[right];
    if (known.has(token)) {
      spelledOtherwise.add(best);
      counts.delete(best);
      continue;
    }
    known.add(token);
    const merged = tokens.push(token) - 1;
    merges.push([tokens[left], tokens[right]]);
    for (const piece of [...places.get(best)!]) {
      count(piece, -1);
      piece.ids = withMerged(piece.ids, left, right, merged);
      count(piece, 1);
    }
    places.delete(best);
  }
  return merges;
}

/** Texts at even distances, each cut to its beginning. */
function sampled(texts: readonly string[]): string[] {
  const cut = texts.map(text => text.slice(0, MAX_TEXT_CHARACTERS));
  const bytes = cut.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const distance = Math.max(1, Math.ceil(bytes / MAX_BYTES));
  let left = MAX_BYTES;
  return cut.filter((text, i) => {
    const size = Buffer.byteLength(text);
    const taken = i % distance === 0 && size <= left;
    if (taken) left -= size;
    return taken;
  });
}

function countedPieces(texts: readonly string[], words: readonly string[]): Piece[] {
  const between = words.length === 0 ? undefined : new RegExp(longestFirst([...words]), 'u');
  const pattern = new RegExp(MERGED_PIECE, 'gu');
  const counts = new Map<string, number>();
  for (const text of texts) {
    for (const part of between ? text.split(between) : [text]) {
      for (const [piece] of part.matchAll(pattern)) counts.set(piece, (counts.get(piece) ?? 0) + 1);
    }
  }
  return Array.from(counts, ([piece, count]) => ({ ids: [...Buffer.from(piece)], count }));
}

function mostFrequent(counts: ReadonlyMap<number, number>): number | undefined {
  let best: number | undefined;
  let most = LEAST_COUNT;
  for (const [pair, count] of counts) {
    if (count < most || (count === most && best !== undefined && pair > best)) continue;
    [best, most] = [pair, count];
  }
  return best;
}

function withMerged(ids: readonly number[], left: number, right: number, merged: number): number[] {
  const shorter: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    const isPair = ids[i] === left && ids[i + 1] === right;
    shorter.push(isPair ? merged : ids[i]);
    if (isPair) i++;
  }
  return shorter;
}
