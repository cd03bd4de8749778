/**
 * BM25 as Lucene scores it (Robertson & Zaragoza 2009; k1 = 0.9, b = 0.4 as Pyserini sets them). Small
 * libraries were looked at first: MiniSearch multiplies scores by the number of query words found and takes the
 * number of distinct words for a document's length, so that its order is not BM25's.
 */

const K1 = 0.9;
const B = 0.4;

/** Words too common to tell documents apart. */
const STOP_WORDS = new Set(
  'a an and are as at be but by for from has have he her his i if in into is it its me my of on or she that the their then there these they this to was we were what when where which who whom whose will with you'.split(
    ' ',
  ),
);

export interface Hit {
  /** Position of the document in the list that was indexed. */
  readonly document: number;
  readonly score: number;
}

interface Postings {
  readonly documents: number[];
  readonly counts: number[];
}

/** Searches a fixed list of texts. */
export class Bm25Index {
  readonly #postings = new Map<string, Postings>();
  readonly #lengths: number[] = [];
  readonly #meanLength: number;

  constructor(texts: Iterable<string>) {
    let total = 0;
    for (const text of texts) {
      const document = this.#lengths.length;
      const words = tokenize(text);
      this.#lengths.push(words.length);
      total += words.length;
      for (const word of words) this.#add(word, document);
    }
    this.#meanLength = total / Math.max(this.#lengths.length, 1) || 1;
  }

  #add(word: string, document: number): void {
    let postings = this.#postings.get(word);
    if (!postings) {
      postings = { documents: [], counts: [] };
      this.#postings.set(word, postings);
    }
    const last = postings.documents.length - 1;
    if (postings.documents[last] === document) postings.counts[last]++;
    else {
      postings.documents.push(document);
      postings.counts.push(1);
    }
  }

  /** The best documents that share a word with the query, best first; equals in the order of the list. */
  search(query: string, limit: number): Hit[] {
    const scores = new Map<number, number>();
    for (const word of tokenize(query)) {
      const postings = this.#postings.get(word);
      if (!postings) continue;
      const { documents, counts } = postings;
      const rarity = Math.log(1 + (this.#lengths.length - documents.length + 0.5) / (documents.length + 0.5));
      for (let at = 0; at < documents.length; at++) {
        const document = documents[at];
        const count = counts[at];
        const norm = K1 * (1 - B + (B * this.#lengths[document]) / this.#meanLength);
        scores.set(document, (scores.get(document) ?? 0) + (rarity * count) / (count + norm));
      }
    }
    return Array.from(scores, ([document, score]) => ({ document, score }))
      .sort((a, b) => b.score - a.score || a.document - b.document)
      .slice(0, limit);
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
