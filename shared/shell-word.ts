const PLAIN = /^[\w@%+=:,./-]+$/;

/** A word as a POSIX shell takes it. */
export function shellWord(word: string): string {
  return PLAIN.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
