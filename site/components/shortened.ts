/** Characters of a text that a page shows. */
const MAX_LENGTH = 100_000;

/** A text short enough to draw: its beginning, and the length of the rest. */
export function shortened(text: string, length = MAX_LENGTH): string {
  if (text.length <= length) return text;
  return `${text.slice(0, length)}\n… ${text.length - length} more characters`;
}
