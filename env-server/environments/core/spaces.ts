import type { JsonObject } from '../../../shared/json.ts';

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
