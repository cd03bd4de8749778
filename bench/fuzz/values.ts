import fc, { type Arbitrary } from 'fast-check';
import type { Schema } from '../../test/json-schema.test-data.ts';
import type { Contract } from './contract.ts';

/**
 * Values for requests: such as fit a schema, such as fit none, and ways to spoil one that fits. Texts may hold the
 * mark `@session:3`, which stands for one of the sessions that are open when the request is sent.
 */

/** Group id of sessions that the fuzzer opens. */
export const FUZZ_NAMESPACE = 'fuzz';
const SESSIONS_IN_PLAY = 8;
/** Above what a schema allows at least, numbers and lengths go so far at most, so that requests stay cheap. */
const SPREAD = 12;
const MAX_SNAPSHOTS = 3;
const OWN_ENVIRONMENTS = 6;
const KEYS = 12;

/** What a server offers, learned by asking it. */
export interface Offer {
  readonly environments: readonly string[];
  readonly actions: readonly unknown[];
  /** Definitions of environments from the document's examples. */
  readonly definitions: readonly unknown[];
}

export const aSession = fc.nat(SESSIONS_IN_PLAY - 1).map(index => `@session:${index}`);
const aSnapshot = fc
  .tuple(aSession, fc.integer({ min: 1, max: MAX_SNAPSHOTS }))
  .map(([session, n]) => `${session}.s${n}`);
const anOwnEnvironment = fc.nat(OWN_ENVIRONMENTS).map(n => `${FUZZ_NAMESPACE}/Own-v${n}`);
/** A trace of a client. */
export const aTraceparent = fc
  .bigInt(1n, 2n ** 128n - 1n)
  .map(trace => `00-${trace.toString(16).padStart(32, '0')}-00f067aa0ba902b7-01`);
/** Mostly fresh ones. */
export const aKey = fc.oneof(fc.nat(KEYS), { weight: 5, arbitrary: fc.nat() }).map(n => `key-${n}`);

/** Values of properties that a schema alone says too little about. */
function hints(offer: Offer): { readonly [name: string]: Arbitrary<unknown> } {
  const definitions = fc.constantFrom(...offer.definitions);
  return {
    session_id: aSession,
    snapshot_id: aSnapshot,
    env_id: fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...offer.environments) }, anOwnEnvironment),
    request_key: aKey,
    group_id: fc.constantFrom('g', 'h', 'a b'),
    config: fc.oneof({ weight: 8, arbitrary: fc.constant({}) }, fc.dictionary(fc.string(), hostile)),
    options: fc.oneof({ weight: 8, arbitrary: fc.constant({}) }, fc.dictionary(fc.string(), hostile)),
    count: fc.oneof({ weight: 30, arbitrary: fc.integer({ min: 1, max: 4 }) }, fc.constantFrom(1000, 4096)),
    action: fc.oneof({ weight: 4, arbitrary: fc.constantFrom(...offer.actions) }, fc.nat(5), hostile),
    definition: fc.oneof(
      { weight: 2, arbitrary: definitions },
      fc.tuple(definitions, aFault).map(([value, fault]) => fault(value)),
    ),
    wrappers: fc.oneof(
      { weight: 6, arbitrary: fc.constant([]) },
      fc.constant([{ name: 'time_limit', options: { max_steps: 3 } }]),
      fc.constant([{ name: 'history', options: { k: 2 } }, { name: 'step_penalty' }]),
      fc.array(
        fc.record({ name: fc.string({ minLength: 1 }), options: fc.dictionary(fc.string(), hostile) }),
      ),
    ),
    observation_format: fc.constantFrom('text', 'text', 'text', 'structured', 'grid', 'image'),
    policy: fc.constantFrom('optimal', 'random', 'x'),
    search: fc.constantFrom('lake', 'grid text', ''),
    tag: fc.constantFrom('grid', 'math', 'none'),
  };
}

/** Makes values that fit the schemas of a document, nearly always. */
export class Fitting {
  readonly #contract: Contract;
  readonly #hints: ReturnType<typeof hints>;

  constructor(contract: Contract, offer: Offer) {
    this.#contract = contract;
    this.#hints = hints(offer);
  }

  /** @param name of the property it is for */
  value(given: Schema, name = ''): Arbitrary<unknown> {
    const schema = this.#contract.resolve(given);
    if (schema.const !== undefined) return fc.constant(schema.const);
    if (Object.hasOwn(this.#hints, name)) return this.#hints[name];
    if (schema.enum) return fc.constantFrom(...schema.enum);
    const choices = schema.oneOf ?? schema.anyOf;
    if (choices) return fc.oneof(...choices.map(choice => this.value(choice)));
    switch (Array.isArray(schema.type) ? schema.type[0] : schema.type) {
      case 'object':
        return this.#object(schema);
      case 'array':
        return fc.array(this.value(schema.items ?? {}), {
          minLength: schema.minItems ?? 0,
          maxLength: Math.min(schema.maxItems ?? SPREAD, (schema.minItems ?? 0) + SPREAD),
        });
      case 'integer':
      case 'number':
        return number(schema);
      case 'string':
        return text(schema);
      case 'boolean':
        return fc.boolean();
      case 'null':
        return fc.constant(null);
      default:
        return fc.jsonValue({ maxDepth: 3 });
    }
  }

  #object({ properties = {}, required = [] }: Schema): Arbitrary<unknown> {
    const values = Object.entries(properties).map(([key, inner]) => [key, this.value(inner, key)] as const);
    return fc.record(Object.fromEntries(values), {
      requiredKeys: required.filter(key => Object.hasOwn(properties, key)),
    });
  }
}

function number({ type, minimum, exclusiveMinimum, maximum }: Schema): Arbitrary<number> {
  const least = minimum ?? (exclusiveMinimum === undefined ? -SPREAD : exclusiveMinimum + 1);
  const most = Math.min(maximum ?? least + SPREAD, least + SPREAD);
  const small = fc.integer({ min: least, max: most });
  if (type !== 'integer') return fc.oneof(small, fc.constant(least + 0.5));
  return maximum === undefined ? small : fc.oneof({ weight: 20, arbitrary: small }, fc.constant(maximum));
}

function text({ pattern, minLength = 0, maxLength = minLength + SPREAD }: Schema): Arbitrary<string> {
  if (pattern !== undefined) return fc.stringMatching(new RegExp(pattern));
  return fc.string({ minLength, maxLength: Math.min(maxLength, minLength + SPREAD), unit: 'grapheme' });
}

/** `levels` lists in one another. */
export const nested = (levels: number): string => `${'['.repeat(levels)}1${']'.repeat(levels)}`;

const HOSTILE: readonly unknown[] = [
  null,
  true,
  -1,
  0,
  -0,
  0.5,
  1e9,
  2 ** 53,
  -(2 ** 53),
  1e308,
  5e-324,
  'NaN',
  'Infinity',
  '-0',
  '1e999',
  '0x10',
  '',
  ' ',
  'x'.repeat(129),
  'x'.repeat(20_000),
  '\u0000',
  '\ud800',
  '🧊',
  '../../etc/passwd',
  '%00',
  '{{7*7}}',
  "' OR 1=1 --",
  '<script>',
  '\r\nX-Injected: 1',
  '__proto__',
  [],
  {},
  [[]],
  [null, 'x', -3],
  { a: { b: [] } },
  { constructor: { prototype: { polluted: true } } },
  { toString: 1, valueOf: null, hasOwnProperty: 'x' },
  { length: 1e9 },
  JSON.parse('{"then":1}'),
  Array.from({ length: 5000 }, () => null),
  JSON.parse(nested(30)),
  JSON.parse(nested(70)),
];

/** Values that belong nowhere. */
export const hostile: Arbitrary<unknown> = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...HOSTILE) },
  fc.jsonValue({ maxDepth: 3 }),
);

/** Turns a value into one with a fault. */
export type Fault = (value: unknown) => unknown;

type Place = readonly [holder: { [key: string]: unknown }, key: string];

function placesOf(value: unknown, found: Place[] = []): Place[] {
  if (typeof value !== 'object' || value === null) return found;
  for (const key of Object.keys(value)) {
    const holder = value as { [key: string]: unknown };
    found.push([holder, key]);
    placesOf(holder[key], found);
  }
  return found;
}

/** Keys that mean something somewhere, or to JavaScript. */
const KEYS_TO_ADD = [
  'unknown',
  'id',
  'op',
  'request_key',
  'session_id',
  'env_id',
  'wait',
  'count',
  'timeout_ms',
  'constructor',
  'toString',
  'then',
  'toJSON',
  '',
];

const change = (value: unknown, at: number, how: (place: Place) => void): unknown => {
  const copy = structuredClone(value);
  const places = placesOf(copy);
  if (places.length > 0) how(places[at % places.length]);
  return copy;
};

/** Faults in the value itself: something replaced, left out or added. */
export const aFault: Arbitrary<Fault> = fc
  .tuple(
    fc.constantFrom('replace', 'replace', 'drop', 'add', 'whole'),
    fc.nat(1000),
    hostile,
    fc.constantFrom(...KEYS_TO_ADD),
  )
  .map(([how, at, other, key]) => (value: unknown) => {
    switch (how) {
      case 'replace':
        return change(value, at, ([holder, key]) => {
          holder[key] = other;
        });
      case 'drop':
        return change(value, at, ([holder, key]) => {
          if (Array.isArray(holder)) holder.splice(Number(key), 1);
          else delete holder[key];
        });
      case 'add':
        return typeof value === 'object' && value !== null && !Array.isArray(value)
          ? { ...value, [key]: other }
          : other;
      default:
        return other;
    }
  });

/** A text and how it becomes bytes. */
export interface Bytes {
  readonly text: string;
  readonly encoding: 'utf8' | 'latin1';
}

const NO_NUMBERS = [
  'NaN',
  'Infinity',
  '-Infinity',
  '1e999',
  '-1e999',
  '01',
  '0x1',
  '1.',
  '.5',
  '1_000',
  '--1',
];
const spliced = (text: string, at: number, piece: string): string => {
  const where = at % (text.length + 1);
  return text.slice(0, where) + piece + text.slice(where);
};
const utf8 = (text: string): Bytes => ({ text, encoding: 'utf8' });

/** Ways to spoil the text of a request. */
const SPOILERS: readonly ((text: string, at: number) => Bytes)[] = [
  (text, at) => utf8(text.slice(0, at % (text.length + 1))),
  (text, at) => utf8(spliced(text, at, '\u0000')),
  (text, at) => utf8(text.replace(/:("[^"]*"|\d+)/, `:${NO_NUMBERS[at % NO_NUMBERS.length]}`)),
  text => utf8(text.replace('{', '{"__proto__":{"polluted":1},')),
  text => utf8(text.replace('{', '{"\\u005f_proto__":{"polluted":1},')),
  text => utf8(text.replace('{', '{"session_id":1,"session_id":2,')),
  text => utf8(text.replace(/:("[^"]*"|\d+)/, `:${nested(20_000)}`)),
  text => utf8(text.replace(/:("[^"]*"|\d+)/, ':"\\ud800"')),
  text => utf8(text.replace(/:("[^"]*"|\d+)/, `:"${'x'.repeat(200_000)}"`)),
  text => utf8(`\ufeff${text}`),
  (text, at) => utf8(text + spliced('}],', at, ' ')),
  text => utf8(`${text}${text}`),
  text => utf8(`[${text}]`),
  text => utf8(JSON.stringify(text)),
  (text, at) => ({ text: spliced(text, at, '\xff\xfe'), encoding: 'latin1' }),
  (text, at) => ({ text: spliced(text, at, '\xc3'), encoding: 'latin1' }),
  () => utf8(''),
  () => utf8('null'),
  () => utf8('undefined'),
];

/** Spoils a text. */
export const aSpoiler: Arbitrary<(text: string) => Bytes> = fc
  .tuple(fc.constantFrom(...SPOILERS), fc.nat(2000))
  .map(
    ([spoil, at]) =>
      text =>
        spoil(text, at),
  );
