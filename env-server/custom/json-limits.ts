import { isObject, type Json } from '../../shared/json.ts';
import { escapePointer } from './definitions/fault.ts';

/** Limits on one JSON value from outside. */
export interface JsonLimits {
  /** Nesting depth of objects and lists. */
  readonly depth: number;
  /** Size of its JSON text, in UTF-8 and without escapes. */
  readonly bytes: number;
  /** Number of keys of all its objects. */
  readonly keys: number;
}

/** Nesting depth of any value in requests and answers: Python's parsers and recursive code can handle it. */
export const DEEPEST_JSON = 64;
const MAX_KEYS = 10_000;
const MAX_POINTER_LENGTH = 200;
/** Brackets, quotes, commas and colons: the size of a value beyond its own characters. */
const MARK_BYTES = 2;
const LITERAL_BYTES = 5;

/** Limits of values with only a configurable size. */
export function jsonLimits(bytes: number): JsonLimits {
  return { depth: DEEPEST_JSON, bytes, keys: MAX_KEYS };
}

/** Fault in a value, with its position. */
export interface JsonFault {
  /** JSON pointer. */
  readonly pointer: string;
  readonly message: string;
}

type JsonContainer = { [key: string | number]: unknown };

/** An object or list under inspection, with the next member to read. */
interface Frame {
  readonly holder: JsonContainer;
  /** Undefined for a list. */
  readonly keys: readonly string[] | undefined;
  readonly length: number;
  next: number;
}

/**
 * Checks that a value is plain, finite JSON within the limits. It does not recurse, so a deep value cannot exhaust the
 * stack, and it ends at the first fault.
 * @param mend replaces each lone surrogate by U+FFFD, because UTF-8 has none; without it they are faults
 */
export function faultOf(value: unknown, limits: JsonLimits, mend = false): JsonFault | undefined {
  const open: Frame[] = [];
  const weighed = limits.bytes < Number.POSITIVE_INFINITY;
  let bytes = 0;
  let keys = 0;
  let fault: string | undefined;

  const take = (member: unknown, holder?: JsonContainer, key: string | number = ''): void => {
    switch (typeof member) {
      case 'string':
        if (weighed) bytes += Buffer.byteLength(member) + MARK_BYTES;
        if (member.isWellFormed()) return;
        if (mend && holder) holder[key] = member.toWellFormed();
        else fault = 'holds half of a surrogate pair, which is not Unicode text';
        return;
      case 'number':
        if (weighed) bytes += String(member).length;
        if (!Number.isFinite(member)) fault = `is ${member}, not a finite number`;
        return;
      case 'boolean':
        bytes += LITERAL_BYTES;
        return;
      case 'object':
        bytes += member === null ? LITERAL_BYTES : MARK_BYTES;
        if (member !== null) enter(member);
        return;
      default:
        fault = `is ${typeof member}, not JSON`;
    }
  };

  const enter = (member: object): void => {
    if (open.length >= limits.depth) {
      fault = `is nested more than ${limits.depth} levels deep`;
      return;
    }
    const names = Array.isArray(member) ? undefined : Object.keys(member);
    keys += names?.length ?? 0;
    if (keys > limits.keys) {
      fault = `brings the value to more than ${limits.keys} keys`;
      return;
    }
    const length = names ? names.length : (member as readonly unknown[]).length;
    // Each member costs at least a comma, so a huge list is rejected before it is walked.
    bytes += length;
    open.push({ holder: member as JsonContainer, keys: names, length, next: 0 });
  };

  take(value);
  while (fault === undefined && open.length > 0) {
    if (bytes > limits.bytes) {
      fault = `brings the value to more than ${limits.bytes} bytes`;
      break;
    }
    const frame = open[open.length - 1];
    if (frame.next === frame.length) {
      open.pop();
      continue;
    }
    const key = frame.keys ? frame.keys[frame.next] : frame.next;
    frame.next++;
    if (typeof key === 'string') {
      if (weighed) bytes += Buffer.byteLength(key) + MARK_BYTES;
      if (key === '__proto__') fault = 'has a key that some programs take for the prototype';
      else if (!key.isWellFormed())
        fault = 'has a key with half of a surrogate pair, which is not Unicode text';
    }
    if (fault === undefined) take(frame.holder[key], frame.holder, key);
  }
  if (fault === undefined && bytes > limits.bytes) fault = `has more than ${limits.bytes} bytes`;
  return fault === undefined ? undefined : { pointer: pointerTo(open), message: fault };
}

/** JSON pointer to the current member; the middle of a long pointer is left out. */
function pointerTo(open: readonly Frame[]): string {
  const parts = open
    .filter(({ next }) => next > 0)
    .map(({ keys, next }) => `/${escapePointer(String(keys ? keys[next - 1] : next - 1).toWellFormed())}`);
  const pointer = parts.join('');
  if (pointer.length <= MAX_POINTER_LENGTH) return pointer;
  return `${pointer.slice(0, MAX_POINTER_LENGTH / 2)}…${pointer.slice(-MAX_POINTER_LENGTH / 2)}`;
}

/** A received JSON value exceeds its limits; the message says where and how. */
export class JsonOutOfBounds extends Error {
  constructor(pointer: string, { pointer: inner, message }: JsonFault) {
    super(`${pointer}${inner} ${message}`);
    this.name = 'JsonOutOfBounds';
  }
}

/**
 * Parses text from a script or service as one value.
 * @param pointer position of the value, for messages
 * @throws JsonOutOfBounds; SyntaxError for malformed JSON
 */
export function readValue(text: string, pointer: string, limits: JsonLimits): Json {
  const holder = { value: JSON.parse(text) as Json };
  return bounded(holder, 'value', pointer, limits);
}

/**
 * Parses text from a script or service as an answer: the limits hold for each member of the object.
 * @throws JsonOutOfBounds; SyntaxError for malformed JSON
 */
export function readAnswer(text: string, limits: JsonLimits): Json {
  const holder = { value: JSON.parse(text) as Json };
  const answer = holder.value;
  if (!isObject(answer)) {
    return bounded(holder, 'value', '', limits);
  }
  const members = answer as { [name: string]: Json };
  const names = Object.keys(members);
  if (names.length > limits.keys) {
    throw new JsonOutOfBounds('the answer', { pointer: '', message: `has more than ${limits.keys} keys` });
  }
  for (const name of names) {
    const shown = name.toWellFormed().slice(0, MAX_POINTER_LENGTH);
    if (name === '__proto__' || !name.isWellFormed()) {
      throw new JsonOutOfBounds(`/${escapePointer(shown)}`, {
        pointer: '',
        message: 'is not allowed as a key',
      });
    }
    bounded(members, name, `/${escapePointer(shown)}`, limits);
  }
  return answer;
}

function bounded(holder: { [name: string]: Json }, name: string, pointer: string, limits: JsonLimits): Json {
  const value = holder[name];
  if (typeof value === 'string' && !value.isWellFormed()) holder[name] = value.toWellFormed();
  const fault = faultOf(holder[name], limits, true);
  if (fault) throw new JsonOutOfBounds(pointer, fault);
  return holder[name];
}
