import { Problem } from '../../problems.ts';

/** What the parser says of Python's and JavaScript's ways to write objects. */
const UNQUOTED = /^(?:Expected (?:property name|double-quoted)|Unexpected token (?:'|']'))/;
const FORBIDDEN_KEY = '__proto__';

/**
 * Reads a request's text.
 * @throws Problem `bad_json`, also for the key `__proto__`, which some code would take for the prototype
 */
export function parseJson(text: string): unknown {
  try {
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

function refuseForbidden(key: string, value: unknown): unknown {
  if (key === FORBIDDEN_KEY) throw new Problem('bad_json', `the key "${FORBIDDEN_KEY}" is not allowed`);
  return value;
}
