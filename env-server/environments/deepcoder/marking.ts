import type { Json } from '../../../shared/json.ts';

/** Numbers with a fraction may differ by this share. */
const TOLERANCE = 1e-6;

/**
 * Printed text is right: the same lines but for white space at their ends, or the same words with nearly equal fractions.
 * It stops at the first word that differs and holds no copy of the texts, which may be long.
 */
export function isSameOutput(printed: string, wanted: string): boolean {
  const [found, expected] = [printed.trimEnd(), wanted.trimEnd()];
  if (/^\s/.test(found) !== /^\s/.test(expected)) return false;
  const right = wordsOf(expected);
  for (const [word] of wordsOf(found)) {
    const next = right.next();
    if (next.done || !isSameWord(word, next.value[0])) return false;
  }
  return right.next().done === true;
}

function wordsOf(text: string): Iterator<RegExpExecArray> & Iterable<RegExpExecArray> {
  return text.matchAll(/\S+/g);
}

function isSameWord(word: string, wanted: string): boolean {
  if (word === wanted) return true;
  const number = /^[-+]?\d*\.?\d+(?:e[-+]?\d+)?$/i;
  if (!wanted.includes('.') || !number.test(word) || !number.test(wanted)) return false;
  return isClose(Number(word), Number(wanted));
}

function isClose(a: number, b: number): boolean {
  return Math.abs(a - b) <= TOLERANCE * Math.max(1, Math.abs(b));
}

/** A returned value is right: equal as JSON, fractions nearly. */
export function isSameValue(found: Json, wanted: Json): boolean {
  if (typeof found === 'number' && typeof wanted === 'number') {
    return found === wanted || (!Number.isInteger(wanted) && isClose(found, wanted));
  }
  if (Array.isArray(found) && Array.isArray(wanted)) {
    return found.length === wanted.length && found.every((item, index) => isSameValue(item, wanted[index]));
  }
  if (isObject(found) && isObject(wanted)) {
    const keys = Object.keys(wanted);
    return (
      keys.length === Object.keys(found).length &&
      keys.every(key => Object.hasOwn(found, key) && isSameValue(found[key], wanted[key]))
    );
  }
  return found === wanted;
}

function isObject(value: Json): value is { readonly [key: string]: Json } {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
