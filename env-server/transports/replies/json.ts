import { Problem } from '../../problems.ts';

/** Messages of the parser about Python's and JavaScript's ways to write objects. */
const UNQUOTED = /^(?:Expected (?:property name|double-quoted)|Unexpected token (?:'|']'))/;
const FORBIDDEN_KEY = '__proto__';
/** A key may be written with escapes. */
const ESCAPE = '\\u00';
/** Lists, objects and keys of one text: reading them costs the time, not the length of the text. */
export const MAX_PARTS = 100_000;
/** The same for what defines an environment, which may have large tables. */
export const MAX_DEFINITION_PARTS = 300_000;
/** Other values of a text cost a fraction of that. */
export const VALUES_A_PART = 2;
const QUOTE = 0x22;
const COMMA = 0x2c;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;

/**
 * Reads a request's text.
 * @throws Problem `bad_json`, also for the key `__proto__`, which some code would take for the prototype
 */
export function parseJson(text: string, maxParts = MAX_PARTS): unknown {
  try {
    if (text.length > maxParts && hasTooManyParts(text, maxParts)) {
      throw new Problem(
        'body_too_large',
        `a request may have ${maxParts} lists, objects and keys (${VALUES_A_PART} values of a list count as one), this one has more`,
      );
    }
    const value: unknown = JSON.parse(text);
    if (text.includes(FORBIDDEN_KEY) || text.includes(ESCAPE)) refuseForbidden(value);
    return value;
  } catch (error) {
    if (error instanceof Problem) throw error;
    const { message } = error as Error;
    const hint = UNQUOTED.test(message)
      ? '; keys and texts take double quotes, and no comma before } or ]'
      : '';
    throw new Problem('bad_json', message + hint);
  }
}

function hasTooManyParts(text: string, maxParts: number): boolean {
  const most = VALUES_A_PART * maxParts;
  let cost = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) at = endOfString(text, at);
    else if (unit === COMMA) cost++;
    else if (unit === COLON || unit === BRACKET || unit === BRACE) cost += VALUES_A_PART;
    if (cost > most) return true;
  }
  return false;
}

/** Index of the quote that ends a string; the end of the text where there is none. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((end - before) % 2 === 0) return end;
  }
  return text.length;
}

/** Looks at every key of a value. (A function that `JSON.parse` calls for each would take ten times as long.) */
function refuseForbidden(value: unknown): void {
  const open: unknown[] = [value];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== 'object' || next === null) continue;
    if (Object.hasOwn(next, FORBIDDEN_KEY)) {
      throw new Problem('bad_json', `the key "${FORBIDDEN_KEY}" is not allowed`);
    }
    for (const member of Array.isArray(next) ? next : Object.values(next)) {
      if (typeof member === 'object' && member !== null) open.push(member);
    }
  }
}
