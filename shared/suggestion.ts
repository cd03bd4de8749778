import { distance } from 'fastest-levenshtein';

/** Edits at which a misspelled word is still taken for a known one: a share of its length, but two in a short one. */
const LIKENESS = 0.35;
const MIN_EDITS = 2;
/** Nobody misspells a longer word; the time to compare grows with the square. */
const MAX_COMPARED_LENGTH = 128;

/**
 * Known words that a word may be a misspelling of, the nearest first; case does not matter. Two neighboring letters that
 * are swapped count as one edit, and of words as near those come first that begin with the same letter.
 */
export function similar(word: string, known: readonly string[]): string[] {
  if (word.length > MAX_COMPARED_LENGTH) return [];
  const wanted = word.toLowerCase();
  const most = Math.min(word.length - 1, Math.max(MIN_EDITS, LIKENESS * word.length));
  return known
    .map(candidate => ({ candidate, edits: editsBetween(wanted, candidate.toLowerCase()) }))
    .filter(({ candidate, edits }) => edits <= most && edits < candidate.length)
    .sort((a, b) => a.edits - b.edits || beginsAlike(wanted, b.candidate) - beginsAlike(wanted, a.candidate))
    .map(({ candidate }) => candidate);
}

/** `, did you mean …?` for the nearest known word, '' when none is near. */
export function suggestion(word: string, known: readonly string[]): string {
  const [best] = similar(word, known);
  return best === undefined ? '' : `, did you mean \`${best}\`?`;
}

function editsBetween(word: string, known: string): number {
  let least = distance(word, known);
  // One swap more cannot be better than one edit.
  for (let i = 0; i + 1 < word.length && least > 1; i++) {
    const swapped = word.slice(0, i) + word[i + 1] + word[i] + word.slice(i + 2);
    least = Math.min(least, 1 + distance(swapped, known));
  }
  return least;
}

const beginsAlike = (word: string, known: string): number => Number(word[0] === known[0]?.toLowerCase());
