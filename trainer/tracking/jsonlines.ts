import { appendFileSync, readFileSync, statSync, truncateSync } from 'node:fs';
import { jsonOf } from '../../shared/json.ts';
import { replaceFileSync } from '../../shared/replace-file.ts';

const NEWLINE = 0x0a;

/** Appends one JSON value as a line; numbers that are not finite become the strings `NaN`, `Infinity`, `-Infinity`. */
export function appendJsonLine(file: string, value: unknown): void {
  appendFileSync(file, `${toJson(value)}\n`);
}

/** Replaces the file by these lines in one move. */
export function writeJsonLines(file: string, values: readonly unknown[]): void {
  replaceFileSync(file, values.map(value => `${toJson(value)}\n`).join(''));
}

/** A value of a JSON Lines file, and the number of its line, from 1. */
export interface NumberedValue {
  readonly line: number;
  readonly value: unknown;
}

/**
 * The values of a JSON Lines file from another program. The last line counts without a line break, too; blank lines are
 * skipped.
 * @throws SyntaxError when any other line is not JSON
 */
export function readGivenJsonLines(file: string): NumberedValue[] {
  return readFileSync(file, 'utf8')
    .split('\n')
    .flatMap((text, i) =>
      text.trim() === '' ? [] : [{ line: i + 1, value: parseLine(text, `${file}:${i + 1}`) }],
    );
}

/**
 * The values of a JSON Lines file that this program writes; none when it does not exist. An incomplete last line (the
 * writer was killed) is left out.
 * @throws SyntaxError when any other line is not JSON; Error for anything but a regular file
 */
export function readJsonLines(file: string): unknown[] {
  if (!isThere(file)) return [];
  const lines = readFileSync(file, 'utf8').split('\n');
  lines.pop();
  return lines.map((line, i) => parseLine(line, `${file}:${i + 1}`));
}

/** @throws Error for a pipe, device or folder: reading it may never end */
function isThere(file: string): boolean {
  const stats = statSync(file, { throwIfNoEntry: false });
  if (stats && !stats.isFile()) throw new Error(`${file} is not a regular file`);
  return stats !== undefined;
}

const parseLine = (text: string, place: string): unknown =>
  jsonOf(text, reason => new SyntaxError(`${place} is not JSON: ${reason}`));

/**
 * The values of a JSON Lines file that is about to be appended to. An incomplete last line is removed from the file:
 * the next append would continue it and make the file unreadable.
 * @throws SyntaxError when any other line is not JSON
 */
export function reopenJsonLines(file: string): unknown[] {
  if (!isThere(file)) return [];
  const bytes = readFileSync(file);
  const end = bytes.lastIndexOf(NEWLINE) + 1;
  if (end < bytes.length) truncateSync(file, end);
  return readJsonLines(file);
}

function toJson(value: unknown): string {
  return JSON.stringify(value, (_, item) => {
    if (typeof item === 'number' && !Number.isFinite(item)) return String(item);
    return ArrayBuffer.isView(item) ? Array.from(item as unknown as ArrayLike<number>) : item;
  });
}

/**
 * Removes the rows of a file that are not kept, such as those of iterations that a run which continues plays again.
 * @returns the number of rows before
 */
export function keepRows<Row>(file: string, isKept: (row: Row) => boolean): number {
  const rows = reopenJsonLines(file) as Row[];
  if (!rows.every(isKept)) writeJsonLines(file, rows.filter(isKept));
  return rows.length;
}
