import { selectRange } from '../../components/fields.ts';

/** A part of a text: start and end positions. */
export interface TextRange {
  readonly start: number;
  readonly end: number;
}

const SPACE = /\s*/y;
const SCALAR = /"(?:[^"\\]|\\.)*"|[^\s,\]}]+/y;

/**
 * Position of the value that a JSON pointer names, or of its innermost existing parent.
 * @param text valid JSON
 */
export function locate(text: string, pointer: string): TextRange {
  const path = pointer
    .split('/')
    .slice(1)
    .map(token => token.replaceAll('~1', '/').replaceAll('~0', '~'));
  let range = valueAt(text, 0);
  for (const token of path) {
    const inner = member(text, range.start, token);
    if (!inner) break;
    range = inner;
  }
  return range;
}

function member(text: string, start: number, wanted: string): TextRange | undefined {
  for (const { key, value } of members(text, start)) if (key === wanted) return value;
  return undefined;
}

function* members(text: string, start: number): Generator<{ key: string; value: TextRange }> {
  const isObject = text[start] === '{';
  if (!isObject && text[start] !== '[') return;
  let at = skipSpace(text, start + 1);
  for (let index = 0; text[at] !== '}' && text[at] !== ']'; index++) {
    let key = String(index);
    if (isObject) {
      const name = valueAt(text, at);
      key = JSON.parse(text.slice(name.start, name.end));
      at = skipSpace(text, name.end) + ':'.length;
    }
    const value = valueAt(text, at);
    yield { key, value };
    at = skipSpace(text, value.end);
    if (text[at] === ',') at = skipSpace(text, at + 1);
  }
}

function valueAt(text: string, from: number): TextRange {
  const start = skipSpace(text, from);
  if (text[start] !== '{' && text[start] !== '[') {
    SCALAR.lastIndex = start;
    return { start, end: start + (SCALAR.exec(text)?.[0].length ?? 0) };
  }
  let end = start + 1;
  for (const { value } of members(text, start)) end = value.end;
  return { start, end: text.indexOf(text[start] === '{' ? '}' : ']', end) + 1 };
}

function skipSpace(text: string, at: number): number {
  SPACE.lastIndex = at;
  return at + (SPACE.exec(text)?.[0].length ?? 0);
}

/** Moves to the target of a pointer; to the whole text where it is not JSON. */
export function revealPointer(area: HTMLTextAreaElement, pointer: string): void {
  const { value: text } = area;
  let range = { start: 0, end: text.length };
  try {
    JSON.parse(text);
    range = locate(text, pointer);
  } catch {
    // Code, or JSON with a later error: there is no narrower place to show.
  }
  selectRange(area, range.start, range.end);
}

/** Moves to a line, counted from 1. */
export function revealLine(area: HTMLTextAreaElement, line: number): void {
  const lines = area.value.split('\n');
  const start = lines.slice(0, line - 1).reduce((sum, { length }) => sum + length + 1, 0);
  selectRange(area, start, start + (lines[line - 1]?.length ?? 0));
}
