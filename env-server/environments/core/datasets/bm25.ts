/** Saturation and length normalization, with the defaults of Lucene's users (Pyserini). */
const K1 = 0.9;
const B = 0.4;
/** Decimal digits of a word's weight, so that weights that differ by rounding are equal. */
const PRECISION = 9;

/** Words too common to distinguish documents. */
const STOP_WORDS = new Set(
  'a an and are as at be but by for from has have he her his i if in into is it its me my of on or she that the their then there these they this to was we were what when where which who whom whose will with you'.split(
    ' ',
  ),
);

export interface SearchHit {
  /** Position of the document in the indexed list. */
  readonly document: number;
  readonly score: number;
}

/**
 * Searches a fixed list of texts by BM25 (Robertson & Zaragoza 2009), with Lucene's inverse document frequency, which
 * is never negative.
 */
export class Bm25Index {
  /** The documents that contain each word, with the word's weight there. */
  readonly #hits = new Map<string, SearchHit[]>();

  constructor(texts: readonly string[]) {
    const counts = new Map<string, Map<number, number>>();
    const lengths = texts.map((text, document) => {
      const words = tokenize(text);
      for (const word of words) {
        const ofWord = counts.get(word) ?? new Map<number, number>();
        counts.set(word, ofWord.set(document, (ofWord.get(document) ?? 0) + 1));
      }
      return words.length;
    });
    const meanLength = lengths.reduce((sum, length) => sum + length, 0) / texts.length;
    for (const [word, ofWord] of counts) {
      const rarity = Math.log((texts.length - ofWord.size + 0.5) / (ofWord.size + 0.5) + 1);
      const hits = Array.from(ofWord, ([document, count]) => {
        const norm = 1 - B + B * (lengths[document] / meanLength);
        const weight = ((count * (K1 + 1)) / (K1 * norm + count)) * rarity;
        return { document, score: Number(weight.toFixed(PRECISION)) };
      });
      this.#hits.set(word, hits);
    }
  }

  /** The best documents that share a word with the query, best first; ties in list order. */
  search(query: string, limit: number): SearchHit[] {
    const scores = new Map<number, number>();
    for (const word of tokenize(query)) {
      for (const { document, score } of this.#hits.get(word) ?? []) {
        scores.set(document, (scores.get(document) ?? 0) + score);
      }
    }
    return Array.from(scores, ([document, score]) => ({ document, score }))
      .sort((a, b) => b.score - a.score || a.document - b.document)
      .slice(0, limit);
  }
}

/** Lower-case words and numbers without stop words, with plurals stemmed (Harman's S-stemmer). */
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
