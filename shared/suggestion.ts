import { distance } from 'fastest-levenshtein';

/** Edits at which a misspelled word is still taken for a known one: a share of its length, but two in a short one. */
const LIKENESS = 0.35;
const MIN_EDITS = 2;
/** Nobody misspells a longer word; the time to compare grows with the square. */
const MAX_COMPARED_LENGTH = 128;

/** Known words that a word may be a misspelling of, the nearest first; case does not matter. */
export function similar(word: string, known: readonly string[]): string[] {
  if (word.length > MAX_COMPARED_LENGTH) return [];
  const wanted = word.toLowerCase();
  const most = Math.min(word.length - 1, Math.max(MIN_EDITS, LIKENESS * word.length));
  return known
    .map(candidate => ({ candidate, edits: distance(wanted, candidate.toLowerCase()) }))
    .filter(({ candidate, edits }) => edits <= most && edits < candidate.length)
    .sort((a, b) => a.edits - b.edits)
    .map(({ candidate }) => candidate);
}

/** `, did you mean …?` for the nearest known word, '' when none is near. */
export function suggestion(word: string, known: readonly string[]): string {
  const [best] = similar(word, known);
  return best === undefined ? '' : `, did you mean \`${best}\`?`;
}
