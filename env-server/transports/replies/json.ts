import { Problem } from '../../problems.ts';

/** What the parser says of Python's and JavaScript's ways to write objects. */
const UNQUOTED = /^(?:Expected (?:property name|double-quoted)|Unexpected token (?:'|']'))/;
const FORBIDDEN_KEY = '__proto__';
/** Lists, objects and keys of one text: reading them costs the time, not the length of the text. */
export const MAX_PARTS = 300_000;
const QUOTE = 0x22;
const COLON = 0x3a;
const BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const BRACE = 0x7b;

/**
 * Reads a request's text.
 * @throws Problem `bad_json`, also for the key `__proto__`, which some code would take for the prototype
 */
export function parseJson(text: string): unknown {
  try {
    if (text.length > MAX_PARTS && hasTooManyParts(text)) {
      throw new Problem(
        'body_too_large',
        `a request may have ${MAX_PARTS} lists, objects and keys, this one has more`,
      );
    }
    const suspicious = text.includes(FORBIDDEN_KEY) || text.includes('\\u005');
    return suspicious ? JSON.parse(text, refuseForbidden) : JSON.parse(text);
  } catch (error) {
    if (error instanceof Problem) throw error;
    const { message } = error as Error;
    const hint = UNQUOTED.test(message)
      ? '; keys and texts stand in double quotes, and no comma before } or ]'
      : '';
    throw new Problem('bad_json', message + hint);
  }
}

function hasTooManyParts(text: string): boolean {
  let parts = 0;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) at = endOfString(text, at);
    else if (unit === COLON || unit === BRACKET || unit === BRACE) parts++;
    if (parts > MAX_PARTS) return true;
  }
  return false;
}

/** Where the quote stands that ends a string; the end of the text where there is none. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); end >= 0; end = text.indexOf('"', end + 1)) {
    let before = end;
    while (text.charCodeAt(before - 1) === BACKSLASH) before--;
    if ((end - before) % 2 === 0) return end;
  }
  return text.length;
}

function refuseForbidden(key: string, value: unknown): unknown {
  if (key === FORBIDDEN_KEY) throw new Problem('bad_json', `the key "${FORBIDDEN_KEY}" is not allowed`);
  return value;
}
