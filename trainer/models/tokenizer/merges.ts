import { BYTE_CHARACTERS } from './byte-tokenizer.ts';
import { longestFirst } from './word-tokenizer.ts';

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
export const MERGED_PIECE = '\\p{N}| ?\\p{L}{1,16}| ?[^ \\t\\n\\r\\p{L}\\p{N}]{1,16}|[ \\t\\n\\r]{1,16}';

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
