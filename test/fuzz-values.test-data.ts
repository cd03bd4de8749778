import type { Json, JsonObject } from '../shared/json.ts';
import type { Random } from '../shared/random.ts';
import type { Schema } from './json-schema.test-data.ts';

const WORDS = [
  'P',
  '_',
  'O',
  'G',
  '#',
  'X',
  'P_XO#',
  '####\n#PXO#\n####',
  'SFFG',
  'Up',
  '3 + 5',
  '🧊',
  'a b',
  '',
  '\n',
  '../x',
];
const JUNK: readonly Json[] = [
  null,
  true,
  -1,
  0,
  0.5,
  1e9,
  '',
  'junk',
  [],
  {},
  [[]],
  [null, 'x', -3],
  { a: { b: [] } },
  'x'.repeat(5000),
];
/** Greatest side, count and so on that is drawn, however much the schema allows. */
const MOST = 12;

/** A value that fits a schema, or nearly: patterns and rules between keys are not minded. */
export function fitting(schema: Schema, rng: Random): Json {
  if (schema.const !== undefined) return schema.const;
  if (schema.enum) return rng.choice(schema.enum);
  if (schema.anyOf) return fitting(rng.choice(schema.anyOf), rng);
  if (schema.default !== undefined && schema.type !== 'object' && rng.chance(0.3)) return schema.default;
  switch (schema.type) {
    case 'object':
      return object(schema, rng);
    case 'array': {
      const least = schema.minItems ?? 0;
      const length =
        least + rng.integer(Math.max(1, Math.min(schema.maxItems ?? MOST, least + MOST) - least + 1));
      return Array.from({ length }, () => fitting(schema.items ?? {}, rng));
    }
    case 'integer':
    case 'number': {
      const least = schema.minimum ?? schema.exclusiveMinimum ?? -MOST;
      const most = Math.min(schema.maximum ?? least + MOST, least + MOST);
      const value = least + rng.float() * (most - least);
      return schema.type === 'integer' ? Math.round(value) : value;
    }
    case 'string':
      return rng.choice(WORDS);
    case 'boolean':
      return rng.chance(0.5);
    default:
      return rng.choice(JUNK);
  }
}

function object(schema: Schema, rng: Random): JsonObject {
  const entries: [string, Json][] = [];
  for (const [key, inner] of Object.entries(schema.properties ?? {})) {
    if (rng.chance(0.5)) entries.push([key, fitting(inner, rng)]);
  }
  return Object.fromEntries(entries);
}

/** An object with one of its values, or a new one, replaced by something that does not belong there. */
export function spoilt(value: JsonObject, schema: Schema, rng: Random): JsonObject {
  const keys = [
    ...Object.keys(value),
    ...Object.keys(schema.properties ?? {}),
    'unknown',
    '__proto__',
    'constructor',
  ];
  return Object.fromEntries([...Object.entries(value), [rng.choice(keys), rng.choice(JUNK)]]);
}
