import { shown } from '../../../shared/faults.ts';
import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { fits } from '../../../shared/schema/check.ts';

/** Element types of a `Box`: those for whole numbers, and one for fractions. */
type BoxType = 'uint8' | 'int64' | 'float64';

/**
 * The spaces of Gymnasium that cross the wire, and how their values are written in JSON.
 *
 * - `Boolean` is `Discrete(2)` there; in JSON true or false.
 * - `Nullable` is `OneOf((Discrete(1), space))` there; in JSON null, which is (0, 0), or a value v of `space`, which is
 *   (1, v).
 * - `Box`, `MultiDiscrete` and `MultiBinary` are nested lists, a `Box` of the shape [] a number.
 * - `Tuple` and `Sequence` are lists.
 * - `Json` has no counterpart.
 */
export type Space =
  | {
      readonly type: 'Discrete';
      readonly n: number;
      readonly start?: number;
      readonly names?: readonly string[];
    }
  | {
      readonly type: 'Text';
      readonly minLength?: number;
      readonly maxLength: number;
      readonly pattern?: string;
      /** The only texts that occur. */
      readonly values?: readonly string[];
      /** Every character that occurs, each once; absent where any may. */
      readonly charset?: string;
    }
  | {
      readonly type: 'Box';
      /** Least and greatest value of every element; null where there is no bound. */
      readonly low: number | null;
      readonly high: number | null;
      readonly shape: readonly number[];
      readonly dtype: BoxType;
    }
  | {
      readonly type: 'MultiDiscrete';
      /** The number of values of every element, from 0. */
      readonly nvec: readonly number[];
    }
  | { readonly type: 'MultiBinary'; readonly shape: readonly number[] }
  | { readonly type: 'Boolean' }
  | { readonly type: 'Nullable'; readonly space: Space }
  | { readonly type: 'Tuple'; readonly spaces: readonly Space[] }
  | { readonly type: 'Sequence'; readonly space: Space }
  | { readonly type: 'Dict'; readonly spaces: { readonly [key: string]: Space } }
  | { readonly type: 'Json'; readonly schema: JsonObject };

/** Spaces of an environment's observations. */
export interface ObservationSpaces {
  /** Space of the format `text` and of the other text formats. */
  readonly text: Space;
  /** Space of the format `structured`. */
  readonly structured: Space;
}

/** Short constructors of spaces. */

const FIRST_PRINTABLE = 0x20;
const LAST_PRINTABLE = 0x7e;

/** The characters of English text in lines: printable ASCII and the line break. */
export const LINES = `\n${String.fromCharCode(
  ...Array.from({ length: LAST_PRINTABLE - FIRST_PRINTABLE + 1 }, (_, i) => FIRST_PRINTABLE + i),
)}`;

/** The characters that occur in texts, each once. */
export function charactersOf(...texts: readonly string[]): string {
  return [...new Set(texts.flatMap(text => [...text]))].sort().join('');
}

/** @param charset every character that occurs; undefined where any may */
export function text(maxLength: number, charset: string | undefined = LINES): Space {
  return { type: 'Text', maxLength, ...(charset !== undefined && { charset }) };
}

/** Text of any characters. */
export function anyText(maxLength: number): Space {
  return { type: 'Text', maxLength };
}

/**
 * Texts with additional text before or after them.
 * @param more most additional characters
 * @param charset characters of the addition that English text lacks; undefined where any may occur
 */
export function longerText(space: Extract<Space, { type: 'Text' }>, more: number, charset?: string): Space {
  const maxLength = space.maxLength + more;
  if (space.charset === undefined || charset === undefined) return anyText(maxLength);
  return text(maxLength, charactersOf(LINES, space.charset, charset));
}

/** One of several texts. */
export function choice(...values: readonly string[]): Space {
  const lengths = values.map(value => value.length);
  return {
    type: 'Text',
    minLength: Math.min(...lengths),
    maxLength: Math.max(...lengths),
    values,
    charset: charactersOf(...values),
  };
}

/** Whole numbers of a shape, each from `low` to `high`; one number for no shape. */
export function integers(low: number, high: number, ...shape: readonly number[]): Space {
  return { type: 'Box', low, high, shape, dtype: low >= 0 && high <= 255 ? 'uint8' : 'int64' };
}

/** A count. */
export const COUNT: Space = integers(0, Number.MAX_SAFE_INTEGER);

/** A number; unbounded by default. */
export function number(low: number | null = null, high: number | null = null): Space {
  return { type: 'Box', low, high, shape: [], dtype: 'float64' };
}

export const FLAG: Space = { type: 'Boolean' };

/** [row, col] on a board. */
export const cell = (rows: number, cols: number): Space => ({ type: 'MultiDiscrete', nvec: [rows, cols] });

export const list = (space: Space): Space => ({ type: 'Sequence', space });

export const tuple = (...spaces: readonly Space[]): Space => ({ type: 'Tuple', spaces });

export const dict = (spaces: { readonly [key: string]: Space }): Space => ({ type: 'Dict', spaces });

/** Null, or a value of a space. */
export const orNull = (space: Space): Space => ({ type: 'Nullable', space });

/** Any object, where nothing more is known. */
export const ANY_OBJECT: Space = { type: 'Json', schema: { type: 'object' } };

/** A part of an observation: text, or a picture. */
export const PART: Space = { type: 'Json', schema: { type: 'object', required: ['type'] } };

/** JSON Schema of a space's values. */
export function jsonSchema(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete': {
      const start = space.start ?? 0;
      const id = { type: 'integer', minimum: start, maximum: start + space.n - 1 };
      return space.names ? { anyOf: [id, { type: 'string', enum: space.names }] } : id;
    }
    case 'Text':
      if (space.values) return { type: 'string', enum: space.values };
      return {
        type: 'string',
        ...(space.minLength === undefined ? {} : { minLength: space.minLength }),
        maxLength: space.maxLength,
        ...(space.pattern === undefined ? {} : { pattern: space.pattern }),
      };
    case 'Box': {
      const { low, high, dtype } = space;
      const element = {
        type: dtype === 'float64' ? 'number' : 'integer',
        ...(low !== null && { minimum: low }),
        ...(high !== null && { maximum: high }),
      };
      return arrays(space.shape, element);
    }
    case 'MultiBinary':
      return arrays(space.shape, { type: 'integer', minimum: 0, maximum: 1 });
    case 'MultiDiscrete':
      return fixedList(space.nvec.map(n => ({ type: 'integer', minimum: 0, maximum: n - 1 })));
    case 'Boolean':
      return { type: 'boolean' };
    case 'Nullable':
      return { anyOf: [jsonSchema(space.space), { type: 'null' }] };
    case 'Tuple':
      return fixedList(space.spaces.map(jsonSchema));
    case 'Sequence':
      return { type: 'array', items: jsonSchema(space.space) };
    case 'Dict': {
      const names = Object.keys(space.spaces);
      return {
        type: 'object',
        required: names,
        properties: Object.fromEntries(names.map(name => [name, jsonSchema(space.spaces[name])])),
        additionalProperties: false,
      };
    }
    case 'Json':
      return space.schema;
  }
}

/** Nested lists of the dimensions in `shape`, from the outside in. */
function arrays(shape: readonly number[], element: JsonObject): JsonObject {
  return shape.reduceRight<JsonObject>(
    (items, length) => ({ type: 'array', items, minItems: length, maxItems: length }),
    element,
  );
}

function fixedList(prefixItems: readonly JsonObject[]): JsonObject {
  const { length } = prefixItems;
  return { type: 'array', prefixItems: [...prefixItems], minItems: length, maxItems: length };
}

/**
 * Type and parameters of the Gymnasium space; `Json` has no counterpart there and keeps its name. A null bound means
 * unbounded, and a null charset means any character.
 */
export function gymnasiumSpace(space: Space): JsonObject {
  switch (space.type) {
    case 'Discrete':
      return { type: 'Discrete', n: space.n, start: space.start ?? 0 };
    case 'Text':
      return {
        type: 'Text',
        min_length: space.minLength ?? 0,
        max_length: space.maxLength,
        charset: space.charset ?? null,
      };
    case 'Box': {
      const { low, high, shape, dtype } = space;
      return { type: 'Box', low, high, shape, dtype };
    }
    case 'MultiDiscrete':
      return { type: 'MultiDiscrete', nvec: space.nvec };
    case 'MultiBinary':
      return { type: 'MultiBinary', n: space.shape };
    case 'Boolean':
      return { type: 'Discrete', n: 2, start: 0 };
    case 'Nullable':
      return {
        type: 'OneOf',
        spaces: [{ type: 'Discrete', n: 1, start: 0 }, gymnasiumSpace(space.space)],
      };
    case 'Tuple':
      return { type: 'Tuple', spaces: space.spaces.map(gymnasiumSpace) };
    case 'Sequence':
      return { type: 'Sequence', space: gymnasiumSpace(space.space), stack: false };
    case 'Dict':
      return {
        type: 'Dict',
        spaces: Object.fromEntries(
          Object.entries(space.spaces).map(([name, inner]) => [name, gymnasiumSpace(inner)]),
        ),
      };
    case 'Json':
      return { type: 'Json' };
  }
}

type SpaceOfType<T extends Space['type']> = Extract<Space, { type: T }>;

/**
 * The reason why a value is not in a space, as Gymnasium defines it; undefined for a member. Members of a discrete
 * space may be written by name.
 * @param also characters allowed in texts in addition to their charset
 */
export function whyOutside(space: Space, value: Json, also = ''): string | undefined {
  switch (space.type) {
    case 'Discrete':
      return inDiscrete(space, value) ? undefined : `${shown(value)} is not one of ${space.n} actions`;
    case 'Text':
      return whyNoText(space, value, also);
    case 'Boolean':
      return typeof value === 'boolean' ? undefined : `${shown(value)} is not a boolean`;
    case 'Nullable':
      return value === null ? undefined : whyOutside(space.space, value, also);
    case 'Box':
      return whyNoArray(value, space.shape, element => whyNoElement(space, element));
    case 'MultiBinary':
      return whyNoArray(value, space.shape, element =>
        element === 0 || element === 1 ? undefined : `${shown(element)} is neither 0 nor 1`,
      );
    case 'MultiDiscrete':
      return whyNoTuple(value, space.nvec, (n, element) =>
        isInteger(element) && element >= 0 && element < n ? undefined : `${shown(element)} is not below ${n}`,
      );
    case 'Tuple':
      return whyNoTuple(value, space.spaces, (inner, element) => whyOutside(inner, element, also));
    case 'Sequence':
      if (!Array.isArray(value)) return `${shown(value)} is not a list`;
      return firstFault(value, element => whyOutside(space.space, element, also));
    case 'Dict':
      return whyNoDict(space, value, also);
    case 'Json':
      return fits(space.schema, value) ? undefined : `${shown(value)} does not fit the schema`;
  }
}

function inDiscrete({ n, start = 0, names }: SpaceOfType<'Discrete'>, value: Json): boolean {
  if (typeof value === 'string') return names?.includes(value) === true;
  return isInteger(value) && value >= start && value < start + n;
}

function whyNoText(space: SpaceOfType<'Text'>, value: Json, also: string): string | undefined {
  const { minLength = 0, maxLength, pattern, values, charset } = space;
  if (typeof value !== 'string') return `${shown(value)} is not text`;
  if (value.length < minLength) return `has ${value.length} characters, fewer than ${minLength}`;
  if (value.length > maxLength) return `has ${value.length} characters, more than ${maxLength}`;
  if (pattern !== undefined && !new RegExp(pattern).test(value))
    return `${shown(value)} does not match ${pattern}`;
  if (values && !values.includes(value)) return `${shown(value)} is not one of ${values.join(', ')}`;
  if (charset === undefined) return undefined;
  const known = new Set(charset + also);
  const odd = [...value].find(character => !known.has(character));
  return odd === undefined ? undefined : `has the character ${shown(odd)}, which is not in the charset`;
}

function whyNoElement({ low, high, dtype }: SpaceOfType<'Box'>, element: Json): string | undefined {
  if (typeof element !== 'number') return `${shown(element)} is not a number`;
  if (dtype !== 'float64' && !Number.isInteger(element)) return `${element} is not whole`;
  if ((low !== null && element < low) || (high !== null && element > high)) {
    return `${element} is outside [${low}, ${high}]`;
  }
  return undefined;
}

function whyNoArray(
  value: Json,
  shape: readonly number[],
  whyNot: (element: Json) => string | undefined,
): string | undefined {
  if (shape.length === 0) return whyNot(value);
  const [length, ...rest] = shape;
  if (!Array.isArray(value)) return `${shown(value)} is not a list`;
  if (value.length !== length) return `has ${value.length} elements, not ${length}`;
  return firstFault(value, element => whyNoArray(element, rest, whyNot));
}

function whyNoTuple<T>(
  value: Json,
  parts: readonly T[],
  whyNot: (part: T, element: Json) => string | undefined,
): string | undefined {
  if (!Array.isArray(value)) return `${shown(value)} is not a list`;
  if (value.length !== parts.length) return `has ${value.length} elements, not ${parts.length}`;
  return firstFault(value, (element, index) => whyNot(parts[index], element));
}

function whyNoDict({ spaces }: SpaceOfType<'Dict'>, value: Json, also: string): string | undefined {
  if (!isObject(value)) return `${shown(value)} is not an object`;
  const fields = value;
  const extra = Object.keys(fields).find(key => !Object.hasOwn(spaces, key));
  if (extra !== undefined) return `has the unknown key ${extra}`;
  for (const [key, inner] of Object.entries(spaces)) {
    if (!Object.hasOwn(fields, key)) return `lacks the key ${key}`;
    const fault = whyOutside(inner, fields[key], also);
    if (fault !== undefined) return `${key}: ${fault}`;
  }
  return undefined;
}

function firstFault(
  values: readonly Json[],
  whyNot: (element: Json, index: number) => string | undefined,
): string | undefined {
  for (const [index, element] of values.entries()) {
    const fault = whyNot(element, index);
    if (fault !== undefined) return `${index}: ${fault}`;
  }
  return undefined;
}

const isInteger = (value: Json): value is number => typeof value === 'number' && Number.isInteger(value);
