import bm25 from 'wink-bm25-text-search';

/** Saturation and normalization by length as Lucene's users set them (Pyserini). */
const K1 = 0.9;
const B = 0.4;
/** Makes Robertson's rarity of a word Lucene's, which is never negative. */
const RARITY_SHIFT = 1;
const PRECISION = 9;
/** The library wants as many documents; empty ones make up for those that lack. */
const MIN_DOCUMENTS = 3;

/** Words too common to tell documents apart. */
const STOP_WORDS = new Set(
  'a an and are as at be but by for from has have he her his i if in into is it its me my of on or she that the their then there these they this to was we were what when where which who whom whose will with you'.split(
    ' ',
  ),
);

export interface SearchHit {
  /** Position of the document in the list that was indexed. */
  readonly document: number;
  readonly score: number;
}

/** Searches a fixed list of texts by BM25 (Robertson & Zaragoza 2009). */
export class Bm25Index {
  readonly #engine = bm25();

  constructor(texts: readonly string[]) {
    this.#engine.defineConfig({ fldWeights: { text: 1 }, bm25Params: { k1: K1, b: B, k: RARITY_SHIFT } });
    this.#engine.definePrepTasks([tokenize]);
    for (let at = 0; at < Math.max(texts.length, MIN_DOCUMENTS); at++) {
      this.#engine.addDoc({ text: texts[at] ?? '' }, at);
    }
    this.#engine.consolidate(PRECISION);
  }

  /** The best documents that share a word with the query, best first; equals in the order of the list. */
  search(query: string, limit: number): SearchHit[] {
    return this.#engine.search(query, limit).map(([id, score]) => ({ document: Number(id), score }));
  }
}

/** Lower-case words and numbers without stop words, plurals cut to their stem (Harman's S-stemmer). */
export function tokenize(text: string): string[] {
  const words =
    text
      .normalize('NFKC')
      .toLowerCase()
      .match(/[\p{L}\p{N}]+/gu) ?? [];
  return words.filter(word => !STOP_WORDS.has(word)).map(stem);
}

function stem(word: string): string {
  if (word.length < 4) return word;
  if (/(?<![ae])ies$/.test(word)) return `${word.slice(0, -3)}y`;
  if (/(?<![aeo])es$/.test(word)) return word.slice(0, -1);
  return /[^us]s$/.test(word) ? word.slice(0, -1) : word;
}
