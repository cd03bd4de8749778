/** Any JSON value. */
export type Json = null | boolean | number | string | readonly Json[] | { readonly [key: string]: Json };

/** A JSON object. */
export type JsonObject = { readonly [key: string]: Json };

/** True for an object, as JSON has them. */
export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The result of the work; undefined where it fails. */
export function attempted<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** The value of a JSON text; undefined for a text that is none. */
export const parseJson = (text: string): unknown => attempted(() => JSON.parse(text));

/**
 * The value of a JSON text.
 * @param fault makes the error for a text that is none, from the reason why
 */
export function jsonOf(text: string, fault: (reason: string) => Error): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw Object.assign(fault((error as Error).message), { cause: error });
  }
}

/** Levels of values by others: the contract allows 64, in a few more. `JSON.stringify` fails at some thousand. */
const MAX_DEPTH = 100;

/** The value of a JSON text by others; undefined for a text that is none, or nested so deep that writing it would fail. */
export function parseShallowJson(text: string): unknown {
  const value = parseJson(text);
  return isShallow(value) ? value : undefined;
}

/** True for a value of JSON by others that can be written again. */
export const isShallow = (value: unknown): boolean => isWithin(value, MAX_DEPTH);

function isWithin(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  if (levels === 0) return false;
  for (const member of Array.isArray(value) ? value : Object.values(value)) {
    if (typeof member === 'object' && !isWithin(member, levels - 1)) return false;
  }
  return true;
}
