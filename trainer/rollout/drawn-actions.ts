import { isObject, type Json, type JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';
import { DEEPEST_SCHEMA, referred } from '../generation/json/json-schema.ts';
import { drawText, parsePattern, shortened, withLengths } from '../generation/json/pattern.ts';

/** Different actions that are drawn, and tries. */
const ACTIONS = 64;
const TRIES = 512;
/** Spans of numbers of which one is drawn, most items and most characters where the schema sets no bound. */
const SPANS = [9, 99, 999];
const MAX_ITEMS = 3;
const MAX_CHARACTERS = 4;
/** Fractions are multiples of one part of so many, and of a smaller one where a range has less than 1. */
const FRACTION = 100;
const MAX_UNIT = 1e15;
/** Most values and characters of one action, all that it holds included. */
const LARGEST = 10_000;

/** The randomness of one action, the values and characters that are left to it, and the schema that `$ref`s point into. */
interface Draw {
  readonly rng: Random;
  readonly root: JsonObject;
  left: number;
}

/**
 * Different actions that fit the schema of an action space, its properties in order: a random player where an environment
 * lists no JSON actions. Free texts are digits, as nothing says what they should be.
 * @returns undefined for a schema that does not say what an action looks like, or asks for a larger one than is drawn
 */
export function drawnActions(schema: JsonObject): readonly Json[] | undefined {
  const rng = Random.fromSeed(0);
  const drawn = new Map<string, Json>();
  try {
    for (let i = 0; i < TRIES && drawn.size < ACTIONS; i++) {
      const action = valueFor(schema, { rng, root: schema, left: LARGEST }, 0);
      if (action === undefined) return undefined;
      drawn.set(JSON.stringify(action), action);
    }
  } catch (error) {
    if (error instanceof RangeError) return undefined;
    throw error;
  }
  return [...drawn.values()];
}

/**
 * A value of a schema; undefined where it does not say what one looks like, or too little is left.
 * @throws RangeError for a pattern or `$ref` that cannot be followed
 */
function valueFor(schema: Json | undefined, draw: Draw, depth: number): Json | undefined {
  const { rng } = draw;
  if (--draw.left < 0 || depth > DEEPEST_SCHEMA) return undefined;
  const inner = (part: Json | undefined) => valueFor(part, draw, depth + 1);
  if (!isObject(schema)) return undefined;
  const { type, properties, items, prefixItems, pattern, ...rules } = schema;
  if (rules.$ref !== undefined) return inner(referred(rules.$ref, draw.root));
  if (rules.const !== undefined) return rules.const;
  if (Array.isArray(rules.enum)) return rng.choice(rules.enum as readonly Json[]);
  const alternatives = rules.anyOf ?? rules.oneOf;
  if (Array.isArray(alternatives)) return inner(rng.choice(alternatives as readonly Json[]));
  switch (Array.isArray(type) ? rng.choice(type as readonly Json[]) : type) {
    case 'object': {
      if (!isObject(properties)) return undefined;
      const required = new Set(Array.isArray(rules.required) ? rules.required : []);
      const named = Object.entries(properties).filter(([name]) => required.has(name) || rng.chance(0.5));
      const entries = named.map(([name, one]) => [name, inner(one)] as const);
      return entries.some(([, value]) => value === undefined)
        ? undefined
        : (Object.fromEntries(entries) as Json);
    }
    case 'array': {
      const tuple = Array.isArray(prefixItems) ? prefixItems : undefined;
      const length = tuple?.length ?? sized(rules.minItems ?? 0, rules.maxItems, MAX_ITEMS, rng);
      if (length > draw.left) return undefined;
      const values = Array.from({ length }, (_, i) => inner(tuple ? tuple[i] : items));
      return values.some(value => value === undefined) ? undefined : (values as Json[]);
    }
    case 'string': {
      if (pattern !== undefined) return matching(String(pattern), rules, draw);
      const length = sized(rules.minLength ?? 1, rules.maxLength, MAX_CHARACTERS, rng);
      draw.left -= length;
      if (draw.left < 0) return undefined;
      return Array.from({ length }, () => rng.integer(10)).join('');
    }
    case 'integer':
      return bounded(rules, 1, rng);
    case 'number':
      return bounded(rules, unitOf(rules), rng);
    case 'boolean':
      return rng.chance(0.5);
    case 'null':
      return null;
    default:
      return undefined;
  }
}

/** A text of a pattern within the lengths of the schema; undefined where too little is left. */
function matching(pattern: string, { minLength = 0, maxLength = LARGEST }: JsonObject, draw: Draw) {
  const whole = parsePattern(pattern);
  const [least, most] = [Number(minLength), Math.min(Number(maxLength), draw.left)];
  // One character that repeats is narrowed to the lengths instead.
  const isOne = whole.type === 'repeat' && whole.part.type === 'characters';
  const narrowed = withLengths(isOne ? whole : shortened(whole), least, most);
  const text = drawText(narrowed, draw.rng);
  draw.left -= text.length;
  return draw.left < 0 ? undefined : text;
}

/** Number of parts of which a range of numbers draws one. */
function unitOf({ minimum, maximum }: JsonObject): number {
  const range = Number(maximum) - Number(minimum);
  return range > 0 && range < 1
    ? Math.min(MAX_UNIT, FRACTION * 10 ** Math.ceil(-Math.log10(range)))
    : FRACTION;
}

/** A multiple of 1/`unit` between the bounds of a schema. */
function bounded(
  { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }: JsonObject,
  unit: number,
  rng: Random,
): number {
  const least = minimum ?? (above === undefined ? undefined : Number(above) + 1 / unit);
  const most = maximum ?? (below === undefined ? undefined : Number(below) - 1 / unit);
  const span = rng.choice(SPANS);
  const from = Number(least ?? (most === undefined ? 0 : Number(most) - span));
  const to = Number(most ?? from + span);
  if (from === to) return from;
  return within(Math.ceil(from * unit), Math.floor(to * unit), rng) / unit;
}

/** Largest of the numbers that are drawn where a schema sets no bound, counted from their other bound or 0. */
export const DRAWN_SPAN = SPANS.at(-1)!;

/** A schema in which numbers without a bound have one, so that a policy that tries numbers does not name huge ones. */
export function spanned(schema: Json, span: number, depth = 0): Json {
  if (typeof schema !== 'object' || schema === null || depth > DEEPEST_SCHEMA) return schema;
  const inner = (part: Json) => spanned(part, span, depth + 1);
  if (Array.isArray(schema)) return schema.map(inner);
  const {
    minimum,
    maximum,
    exclusiveMinimum: above,
    exclusiveMaximum: below,
    ...rules
  } = schema as JsonObject;
  const parts = Object.entries(schema as JsonObject).map(([name, value]) => {
    if (NAMED_PARTS.has(name) && isObject(value))
      return [name, Object.fromEntries(Object.entries(value).map(([key, one]) => [key, inner(one)]))];
    return [name, PARTS.has(name) ? inner(value) : value];
  });
  const types = [rules.type].flat();
  const isListed = 'enum' in rules || 'const' in rules;
  if (isListed || !(types.includes('integer') || types.includes('number'))) return Object.fromEntries(parts);
  const least = minimum ?? above;
  const most = maximum ?? below;
  return {
    ...Object.fromEntries(parts),
    ...(least === undefined
      ? { minimum: most === undefined ? 0 : Number(most) - span - Number(below !== undefined) }
      : {}),
    ...(most === undefined ? { maximum: Number(least ?? 0) + span + Number(above !== undefined) } : {}),
  };
}

/** Keywords with schemas as values, and those with schemas by name. */
const PARTS = new Set(['items', 'prefixItems', 'anyOf', 'oneOf']);
const NAMED_PARTS = new Set(['properties', '$defs', 'definitions']);

/** True if numbers of the schema lack a bound. */
export const hasUnboundedNumbers = (schema: JsonObject): boolean =>
  JSON.stringify(spanned(schema, 1)) !== JSON.stringify(schema);

/** A size from the least one to a usual one, as far as the bounds allow. */
const sized = (least: Json, most: Json | undefined, usual: number, rng: Random): number =>
  within(Number(least), Math.min(Number(most ?? usual), Math.max(usual, Number(least))), rng);

/** A whole number between two. */
const within = (least: number, most: number, rng: Random): number =>
  least + rng.integer(Math.max(1, Math.min(most - least + 1, 2 ** 31)));
