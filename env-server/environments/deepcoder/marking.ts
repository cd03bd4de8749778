import { StringDecoder } from 'node:string_decoder';
import type { Json } from '../../../shared/json.ts';

/** Numbers with a fraction may differ by this share. */
const TOLERANCE = 1e-6;
/** Characters of a number; what is longer is compared as a text. */
const MAX_NUMBER_LENGTH = 1000;

/** Bytes of a printed text that are decoded at a time, or more within a longer word. */
const PIECE = 65_536;
/** A word that is longer than the whole wanted text by this many characters is wrong, even if it is the same number. */
const LONGER = 4096;

/**
 * Printed text in UTF-8 is right: the same lines but for white space at their ends, or the same words with nearly equal
 * fractions. It stops at the first word that differs and decodes a piece at a time: outputs may be long, and many.
 */
export function isSameOutput(printed: Buffer, wanted: string): boolean {
  const longest = wanted.length + LONGER;
  const right = wanted.matchAll(/\S+/g);
  for (const { word, index } of wordsOf(printed, longest)) {
    const next = right.next();
    if (next.done || word.length > longest || !isSameWord(word, next.value[0])) return false;
    if ((index === 0) !== (next.value.index === 0)) return false;
  }
  return right.next().done === true;
}

/** Words with their indices; one that is longer than `longest` characters may come in parts, the first of them longer as well. */
function* wordsOf(bytes: Buffer, longest: number): Generator<{ word: string; index: number }> {
  const decoder = new StringDecoder('utf8');
  let before = 0;
  /** Last word of the previous piece, which may continue in the next one. */
  let begun = '';
  for (let at = 0, end: number; at < bytes.length; at = end) {
    // A long word is looked at again with each piece: pieces as long as it keep that to twice.
    end = at + Math.max(PIECE, begun.length);
    const isLast = end >= bytes.length;
    const piece = decoder.write(bytes.subarray(at, end)) + (isLast ? decoder.end() : '');
    const text = begun + piece;
    begun = '';
    for (const { 0: word, index } of text.matchAll(/\S+/g)) {
      if (!isLast && index + word.length === text.length && word.length <= longest) begun = word;
      else yield { word, index: before + index };
    }
    before += text.length - begun.length;
  }
}

function isSameWord(word: string, wanted: string): boolean {
  if (word === wanted) return true;
  if (!wanted.includes('.') || !isNumber(word) || !isNumber(wanted)) return false;
  return isClose(Number(word), Number(wanted));
}

function isNumber(word: string): boolean {
  return word.length <= MAX_NUMBER_LENGTH && /^[-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?$/i.test(word);
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
