import type { Json, JsonObject } from '../../../shared/json.ts';
import { fits } from '../../../shared/schema/check.ts';
import type { Space } from './spaces.ts';

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
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    return `${shown(value)} is not an object`;
  const fields = value as JsonObject;
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

const MAX_SHOWN_LENGTH = 60;

function shown(value: Json): string {
  const written = JSON.stringify(value);
  return written.length > MAX_SHOWN_LENGTH ? `${written.slice(0, MAX_SHOWN_LENGTH)}…` : written;
}
