import { isDeepStrictEqual } from 'node:util';

/** True if a value is the same after a trip through JSON. */
export function isPlainJson(value: unknown): boolean {
  const text = JSON.stringify(value);
  return text !== undefined && isDeepStrictEqual(unsigned(JSON.parse(text)), unsigned(value));
}

/** True if two values are the same JSON. */
export function sameJson(a: unknown, b: unknown): boolean {
  const left = JSON.stringify(a);
  const right = JSON.stringify(b);
  return (
    left === right ||
    (left !== undefined && right !== undefined && isDeepStrictEqual(JSON.parse(left), JSON.parse(right)))
  );
}

export function throughJson<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

/** Makes a value and all its parts unalterable. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const part of Object.values(value)) deepFreeze(part);
  }
  return value;
}

/** A short text of a value for a message. */
export function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}…` : text;
}

const MAX_SHOWN_LENGTH = 120;

/** −0 as 0, which JSON does not tell apart. */
function unsigned(value: unknown): unknown {
  if (typeof value === 'number') return value === 0 ? 0 : value;
  if (Array.isArray(value)) return value.map(unsigned);
  if (typeof value !== 'object' || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return value;
  return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, unsigned(part)]));
}
