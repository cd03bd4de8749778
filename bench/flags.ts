import { readFileSync } from 'node:fs';

/**
 * A flag's value.
 * @throws RangeError unless it is an integer above 0
 */
export function positiveInteger(name: string, text: string | undefined): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  throw new RangeError(`--${name} must be a positive integer, got ${text}`);
}

/**
 * The comment that a script begins with: what it measures, how it is called and which flags it takes.
 * @param script path of its file
 */
export function scriptHelp(script: string): string {
  const [, comment] = /^\/\*\*\n(.*?)\n \*\//s.exec(readFileSync(script, 'utf8')) ?? [];
  if (comment === undefined) throw new RangeError(`${script} does not begin with a comment`);
  return comment.replaceAll(/^ \* ?/gm, '');
}
