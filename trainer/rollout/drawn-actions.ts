import type { Json, JsonObject } from '../../shared/json.ts';
import { Random } from '../../shared/random.ts';

/** Different actions that are drawn, and tries. */
const ACTIONS = 64;
const TRIES = 512;
/** Span of numbers, most items and most characters where the schema sets no bound. */
const SPAN = 9;
const MAX_ITEMS = 3;
const MAX_CHARACTERS = 4;
/** A unit of fractions. */
const FRACTION = 100;
/** Most values and characters of one action, all that it holds included. */
const LARGEST = 10_000;

/** The randomness of one action, and the values and characters that are left to it. */
interface Draw {
  readonly rng: Random;
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
  for (let i = 0; i < TRIES && drawn.size < ACTIONS; i++) {
    const action = valueFor(schema, { rng, left: LARGEST });
    if (action === undefined) return undefined;
    drawn.set(JSON.stringify(action), action);
  }
  return [...drawn.values()];
}

/** A value of a schema; undefined where it does not say what one looks like, or too little is left. */
function valueFor(schema: Json | undefined, draw: Draw): Json | undefined {
  const { rng } = draw;
  if (--draw.left < 0) return undefined;
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema)) return undefined;
  const { type, properties, items, prefixItems, pattern, ...rules } = schema as JsonObject;
  if (rules.const !== undefined) return rules.const;
  if (Array.isArray(rules.enum)) return rng.choice(rules.enum as readonly Json[]);
  const alternatives = rules.anyOf ?? rules.oneOf;
  if (Array.isArray(alternatives)) return valueFor(rng.choice(alternatives as readonly Json[]), draw);
  switch (Array.isArray(type) ? rng.choice(type as readonly Json[]) : type) {
    case 'object': {
      if (properties === undefined) return undefined;
      const required = new Set(rules.required as readonly string[] | undefined);
      const named = Object.entries(properties as JsonObject).filter(
        ([name]) => required.has(name) || rng.chance(0.5),
      );
      const entries = named.map(([name, one]) => [name, valueFor(one, draw)] as const);
      return entries.some(([, value]) => value === undefined)
        ? undefined
        : (Object.fromEntries(entries) as Json);
    }
    case 'array': {
      const tuple = Array.isArray(prefixItems) ? prefixItems : undefined;
      const length = tuple?.length ?? sized(rules.minItems ?? 0, rules.maxItems, MAX_ITEMS, rng);
      if (length > draw.left) return undefined;
      const values = Array.from({ length }, (_, i) => valueFor(tuple ? tuple[i] : items, draw));
      return values.some(value => value === undefined) ? undefined : (values as Json[]);
    }
    case 'string': {
      if (pattern !== undefined) return undefined;
      const length = sized(rules.minLength ?? 1, rules.maxLength, MAX_CHARACTERS, rng);
      draw.left -= length;
      if (draw.left < 0) return undefined;
      return Array.from({ length }, () => rng.integer(10)).join('');
    }
    case 'integer':
      return bounded(rules, 1, rng);
    case 'number':
      return bounded(rules, FRACTION, rng);
    case 'boolean':
      return rng.chance(0.5);
    case 'null':
      return null;
    default:
      return undefined;
  }
}

/** A multiple of 1/`unit` between the bounds of a schema. */
function bounded(
  { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }: JsonObject,
  unit: number,
  rng: Random,
): number {
  const least = minimum ?? (above === undefined ? undefined : Number(above) + 1 / unit);
  const most = maximum ?? (below === undefined ? undefined : Number(below) - 1 / unit);
  const from = Number(least ?? (most === undefined ? 0 : Number(most) - SPAN));
  const to = Number(most ?? from + SPAN);
  return within(Math.ceil(from * unit), Math.floor(to * unit), rng) / unit;
}

/** A size from the least one to a usual one, as far as the bounds allow. */
const sized = (least: Json, most: Json | undefined, usual: number, rng: Random): number =>
  within(Number(least), Math.min(Number(most ?? usual), Math.max(usual, Number(least))), rng);

/** A whole number between two. */
const within = (least: number, most: number, rng: Random): number =>
  least + rng.integer(Math.max(1, Math.min(most - least + 1, 2 ** 31)));
