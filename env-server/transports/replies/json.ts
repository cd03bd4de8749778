import { Problem } from '../../problems.ts';

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
    throw new Problem('bad_json', (error as Error).message);
  }
}

function refuseForbidden(key: string, value: unknown): unknown {
  if (key === FORBIDDEN_KEY) throw new Problem('bad_json', `the key "${FORBIDDEN_KEY}" is not allowed`);
  return value;
}
