import { parseJson } from '../../shared/json.ts';

const NO_BREAK_SPACE = '\u00a0';

/** A number with its unit on the same line: `42 %`, `45 s`. */
export function withUnit(value: number | string, unit: string): string {
  return `${value}${NO_BREAK_SPACE}${unit}`;
}

/** Characters of a text that a page shows. */
const MAX_LENGTH = 100_000;

/** A text short enough to draw: its beginning, and the length of the rest. */
export function shortened(text: string, length = MAX_LENGTH): string {
  if (text.length <= length) return text;
  return `${text.slice(0, length)}\n… ${text.length - length} more characters`;
}

/** A reply of a server: JSON with its parts on lines, any other text unchanged, short enough to draw. */
export function readableReply(reply: string, length?: number): string {
  const value = parseJson(reply);
  return shortened(value === undefined ? reply : JSON.stringify(value, null, 2), length);
}
