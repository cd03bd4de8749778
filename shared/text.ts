/** `1 run`, `2 runs`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

const PLAIN = /^[\w@%+=:,./-]+$/;

/** A word as a POSIX shell takes it. */
export function shellWord(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** Characters that control a terminal, break lines, or change text direction. */
const STEERING = /[\p{Cc}\p{Zl}\p{Zp}\u202a-\u202e\u2066-\u2069]/gu;
/** Control characters allowed in our own multi-line texts. */
const LAYOUT: ReadonlySet<string> = new Set(['\n', '\t']);

/**
 * Makes foreign text (from a server, service, client or model) safe for a message or a terminal: characters that could
 * control the terminal or fake other lines are escaped.
 * @example printable('\x1b[2J'); // '\\u001b[2J'
 */
export function printable(text: string): string {
  return text.replace(STEERING, escaped);
}

/** Like {@link printable}, but keeps line breaks and tabs: for our own multi-line texts that may quote foreign ones. */
export function printableLines(text: string): string {
  return text.replace(STEERING, character => (LAYOUT.has(character) ? character : escaped(character)));
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A user name or password in an address within a text. No quote is part of one, so JSON stays JSON. */
const CREDENTIALS = /:\/\/[^\s/?#"]*@/g;

/** True for an address such as `http://user:password@host`; requests leave these out. */
export const hasCredentials = (url: string): boolean => withoutCredentials(url) !== url;

/** A text with `***` in place of the user names and passwords of its addresses. */
export const withoutCredentials = (text: string): string => text.replace(CREDENTIALS, '://***@');

/** An address for a log, with `?…` in place of its query, which may hold a token. */
export function withoutQuery(url: string): string {
  const [path, query] = url.split('?', 2);
  return query === undefined ? path : `${path}?…`;
}

/** Edits within which a word counts as misspelled: a share of its length, but two for a short word. */
const LIKENESS = 0.35;
const MIN_EDITS = 2;
/** Longer words are not compared: the time grows with the square of the length. */
const MAX_COMPARED_LENGTH = 128;

/**
 * Known words that a word may be a misspelling of, nearest first, ignoring case. Swapping two neighboring letters
 * counts as one edit; among equally near words those with the same first letter come first.
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

/** Fewest insertions, deletions, replacements and swaps of neighbors (optimal string alignment distance). */
function editsBetween(word: string, known: string): number {
  let swapped: number[] = [];
  let above: number[] = [];
  let row = Array.from({ length: known.length + 1 }, (_, j) => j);
  for (let i = 1; i <= word.length; i++) {
    [swapped, above, row] = [above, row, [i]];
    for (let j = 1; j <= known.length; j++) {
      const replaced = above[j - 1] + Number(word[i - 1] !== known[j - 1]);
      row[j] = Math.min(above[j] + 1, row[j - 1] + 1, replaced);
      if (i > 1 && j > 1 && word[i - 1] === known[j - 2] && word[i - 2] === known[j - 1]) {
        row[j] = Math.min(row[j], swapped[j - 2] + 1);
      }
    }
  }
  return row[known.length];
}

const beginsAlike = (word: string, known: string): number => Number(word[0] === known[0]?.toLowerCase());
