import type { TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { isObject } from './json.ts';
import { counted, suggestion } from './text.ts';

/** One fault of a value. */
export interface Fault {
  /** JSON pointer into the value. */
  readonly pointer: string;
  /** The fault and what would be right. The place is left out, unless the fault is about a key. */
  readonly message: string;
  /** The expected form; absent for keys and where `values` is set. */
  readonly expected?: string;
  /** The allowed values. */
  readonly choices?: readonly unknown[];
  /** The missing or unknown key. */
  readonly key?: { readonly name: string; readonly isKnown: boolean; readonly known: readonly string[] };
}

/**
 * A fault with its place.
 * @param whole how to call the value itself
 */
export function faultText({ pointer, message, key }: Fault, whole: string): string {
  if (!key) return `${pointer.slice(1) || whole} ${message}`;
  const object = pointer.slice(1, Math.max(pointer.lastIndexOf('/'), 1));
  return object === '' ? message : `${object}: ${message}`;
}

/** Schema keywords that this file reads. */
interface PlainSchema {
  readonly type?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly examples?: readonly unknown[];
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly maxLength?: number;
  readonly patternProperties?: { readonly [pattern: string]: PlainSchema };
  readonly properties?: { readonly [key: string]: PlainSchema };
  readonly additionalProperties?: unknown;
  readonly items?: PlainSchema;
  readonly anyOf?: readonly PlainSchema[];
}

/** Unknown keys examined in one object: the validator is slow for each, and stops after eight faults. */
const MAX_UNKNOWN = 4;
const MAX_SHOWN_LENGTH = 60;
/**
 * Words that mark keys with possible secrets, so their values are not repeated: `X-API-Key` has one, `max_tokens` has
 * none.
 */
const SECRET =
  /^(?:auth|authorization|bearer|cookies?|credentials?|keys?|passphrase|[a-z0-9]*(?:apikey|headers?|passw(?:or)?ds?|secrets?|token))$/;
/** Schema path at which a closed object rejects unknown keys. */
const OF_CLOSED = /^(.*)\/additionalProperties$/;
const UNION = /\/(?:anyOf|oneOf)\/(\d+)/;

type ValidationError = Pick<
  TLocalizedValidationError,
  'keyword' | 'schemaPath' | 'instancePath' | 'message'
> & { readonly params: unknown };

/**
 * A copy of the value with few enough unknown keys that finding its faults is quick; the value itself when it already
 * has few. The copy has faults if and only if the value has.
 */
export function withFewUnknown(schema: TSchema, value: unknown): unknown {
  return fewUnknown(schema as PlainSchema, value);
}

function fewUnknown(schema: PlainSchema | undefined, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    const { items } = schema ?? {};
    if (!items) return value;
    const cut = value.map(item => fewUnknown(items, item));
    return cut.some((item, i) => item !== value[i]) ? cut : value;
  }
  const { properties, additionalProperties } = schema ?? {};
  if (!properties) return value;
  // Copies nothing before it has to: there may be very many keys.
  const fields = value as { readonly [key: string]: unknown };
  const kept: [string, unknown][] = [];
  let changed = false;
  for (const [key, part] of Object.entries(properties)) {
    if (!Object.hasOwn(fields, key)) continue;
    const cut = fewUnknown(part, fields[key]);
    changed ||= cut !== fields[key];
    kept.push([key, cut]);
  }
  const most = additionalProperties === false ? kept.length + MAX_UNKNOWN : Number.POSITIVE_INFINITY;
  for (const key in fields) {
    if (Object.hasOwn(properties, key)) continue;
    if (kept.length >= most) {
      changed = true;
      break;
    }
    kept.push([key, fields[key]]);
  }
  return changed ? Object.fromEntries(kept) : value;
}

const bounded = new WeakMap<object, boolean>();

/** True if a schema bounds the size of a value at some depth. */
export function isBounded(schema: object): boolean {
  let known = bounded.get(schema);
  if (known === undefined) {
    known = /"max(?:Length|Items|Properties)":/.test(JSON.stringify(schema));
    bounded.set(schema, known);
  }
  return known;
}

/**
 * The first list, object or text that has more in it than the schema allows. It looks no further into that value, so
 * the cost depends on the schema and not on what the client sent; validators look at every item first.
 */
export function oversizeOf(schema: TSchema, value: unknown): Fault | undefined {
  return oversize(schema as PlainSchema, value, '');
}

function oversize(schema: PlainSchema, value: unknown, pointer: string): Fault | undefined {
  if (schema.anyOf) {
    const faults = schema.anyOf.filter(one => couldBe(one, value)).map(one => oversize(one, value, pointer));
    return faults.every(Boolean) ? faults[0] : undefined;
  }
  const tooMuch = (most: number, one: string, found: string): Fault => ({
    pointer,
    message: `must not have more than ${counted(most, one)}, got ${found}${example(schema)}`,
  });
  if (typeof value === 'string') {
    const { maxLength = value.length } = schema;
    // A character takes up to two UTF-16 units.
    return value.length > 2 * maxLength ? tooMuch(maxLength, 'character', shown(value)) : undefined;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (Array.isArray(value)) {
    const { items, maxItems = value.length } = schema;
    if (value.length > maxItems) return tooMuch(maxItems, 'item', `a list of ${value.length}`);
    if (!items || !isBounded(items)) return undefined;
    return firstOf(value.entries(), ([i, item]) => oversize(items, item, `${pointer}/${i}`));
  }
  const fields = value as { readonly [key: string]: unknown };
  const { properties = {}, patternProperties, maxProperties } = schema;
  if (maxProperties !== undefined) {
    const count = Object.keys(fields).length;
    if (count > maxProperties) return tooMuch(maxProperties, 'key', `an object of ${count}`);
  }
  const inside = ([key, part]: [string, PlainSchema]) =>
    Object.hasOwn(fields, key) ? oversize(part, fields[key], `${pointer}/${escapePointer(key)}`) : undefined;
  const [others] = Object.values(patternProperties ?? {});
  return (
    firstOf(Object.entries(properties), inside) ??
    (others && firstOf(Object.keys(fields), key => inside([key, others])))
  );
}

/** True if a value may be meant as this alternative, judging by its type and constants. */
function couldBe({ type, properties = {} }: PlainSchema, value: unknown): boolean {
  if (type !== undefined && !isOfType(type, value)) return false;
  const fields = value as { readonly [key: string]: unknown } | null;
  return Object.entries(properties).every(
    ([key, { const: only }]) => only === undefined || fields?.[key] === only,
  );
}

function firstOf<T, F>(items: Iterable<T>, find: (item: T) => F | undefined): F | undefined {
  for (const item of items) {
    const found = find(item);
    if (found !== undefined) return found;
  }
  return undefined;
}

/**
 * Describes faults in the words of the schema.
 * @param errors what the schema's validator found in the value
 */
export function faultsOf(schema: TSchema, value: unknown, errors: readonly ValidationError[]): Fault[] {
  const faults = new Map<string, Fault>();
  for (const fault of describe(schema as PlainSchema, value, errors, '#')) {
    if (!faults.has(fault.pointer)) faults.set(fault.pointer, fault);
  }
  return [...faults.values()];
}

/** @param base place in the schema; only errors below it are considered */
function* describe(
  schema: PlainSchema,
  value: unknown,
  errors: readonly ValidationError[],
  base: string,
): Generator<Fault> {
  for (const error of errors) {
    const union = UNION.exec(error.schemaPath.slice(base.length));
    if (union) {
      const path = error.schemaPath.slice(0, base.length + union.index);
      yield* describeUnion(schema, value, errors, path, error);
    } else if (!saysAgain(error, errors)) yield* describeOne(schema, value, error);
  }
}

/** True if other errors are more exact: those inside a union, or those that list an object's unknown keys. */
function saysAgain({ keyword, schemaPath }: ValidationError, errors: readonly ValidationError[]): boolean {
  if (keyword === 'anyOf' || keyword === 'oneOf') return true;
  const [, parent] = (keyword === 'boolean' && OF_CLOSED.exec(schemaPath)) || [];
  return errors.some(error => error.keyword === 'additionalProperties' && error.schemaPath === parent);
}

/** Faults of a value under the union alternative that was probably meant. */
function* describeUnion(
  schema: PlainSchema,
  value: unknown,
  errors: readonly ValidationError[],
  path: string,
  first: ValidationError,
): Generator<Fault> {
  const whole = errors.find(
    ({ schemaPath, instancePath }) => schemaPath === path && first.instancePath.startsWith(instancePath),
  );
  const pointer = whole?.instancePath ?? first.instancePath;
  const given = valueAt(value, pointer);
  const branches = nodeAt(schema, path)?.anyOf ?? [];
  const values = branches.flatMap(
    ({ const: only, enum: several }) => several ?? (only === undefined ? [] : [only]),
  );
  if (branches.length > 0 && branches.every(branch => 'const' in branch || branch.enum)) {
    const message = `must be one of ${values.map(shown).join(', ')}${got(pointer, given)}`;
    yield { pointer, message, choices: values };
    return;
  }
  const meant = branches.flatMap((branch, i) => (isOfType(branch.type, given) ? [i] : []));
  if (meant.length === 1) {
    const branch = `${path}/anyOf/${meant[0]}`;
    const inside = errors.filter(
      ({ schemaPath, instancePath }) =>
        (schemaPath === branch || schemaPath.startsWith(`${branch}/`)) && instancePath.startsWith(pointer),
    );
    if (inside.length > 0) {
      yield* describe(schema, value, inside, branch);
      return;
    }
  }
  const types = [
    ...new Set(
      branches.map(({ type, const: only }) => type ?? (only === undefined ? 'another form' : shown(only))),
    ),
  ];
  yield wrongForm(pointer, `must be ${types.join(' or ')}`, given, nodeAt(schema, path));
}

function wrongForm(pointer: string, expected: string, given: unknown, node: PlainSchema | undefined): Fault {
  return { pointer, expected, message: `${expected}${got(pointer, given)}${example(node)}` };
}

function* describeOne(schema: PlainSchema, value: unknown, error: ValidationError): Generator<Fault> {
  const { keyword, schemaPath, instancePath: at } = error;
  const params = error.params as {
    readonly additionalProperties: readonly string[];
    readonly requiredProperties: readonly string[];
    readonly allowedValues: readonly unknown[];
    readonly allowedValue: unknown;
  };
  const node = nodeAt(schema, schemaPath);
  const given = valueAt(value, at);
  switch (keyword) {
    case 'boolean': {
      const [, parent] = OF_CLOSED.exec(schemaPath) ?? [];
      if (parent === undefined) yield { pointer: at, message: 'is not allowed', expected: 'is not allowed' };
      else
        yield unknownKey(
          nodeAt(schema, parent),
          at.slice(0, at.lastIndexOf('/')),
          unescapePointer(at.slice(at.lastIndexOf('/') + 1)),
        );
      return;
    }
    case 'additionalProperties':
      for (const key of params.additionalProperties) yield unknownKey(node, at, key);
      return;
    case 'required':
      for (const key of params.requiredProperties) {
        yield {
          pointer: `${at}/${escapePointer(key)}`,
          message: `"${key}" is required${example(node)}`,
          key: { name: key, isKnown: true, known: [] },
        };
      }
      return;
    case 'enum':
      yield {
        pointer: at,
        message: `must be one of ${params.allowedValues.map(String).join(', ')}${got(at, given)}`,
        choices: params.allowedValues,
      };
      return;
    case 'const':
      yield wrongForm(at, `must be ${shown(params.allowedValue)}`, given, undefined);
      return;
    default:
      yield wrongForm(at, inSingular(error.message), given, node);
  }
}

function unknownKey(node: PlainSchema | undefined, at: string, key: string): Fault {
  const known = Object.keys(node?.properties ?? {});
  const name = key.length > MAX_SHOWN_LENGTH ? `${key.slice(0, MAX_SHOWN_LENGTH)}…` : key;
  return {
    pointer: `${at}/${escapePointer(name)}`,
    message: `unknown key "${name}"${suggestion(key, known)}${known.length > 0 ? `; known are ${known.join(', ')}` : ''}`,
    key: { name: key, isKnown: false, known },
  };
}

function isOfType(type: string | undefined, value: unknown): boolean {
  if (type === 'integer') return typeof value === 'number';
  if (type === 'array') return Array.isArray(value);
  if (type === 'null') return value === null;
  if (type === 'object') return isObject(value);
  return typeof value === type;
}

function mayBeSecret(pointer: string): boolean {
  const words = pointer.replace(/([a-z0-9])([A-Z])/g, '$1 $2').toLowerCase();
  return words.split(/[^a-z0-9]+/).some(word => SECRET.test(word));
}

function got(pointer: string, value: unknown): string {
  if (value === undefined || mayBeSecret(pointer)) return '';
  if (Array.isArray(value)) return `, got a list of ${value.length}`;
  if (typeof value === 'object' && value !== null) return ', got an object';
  return `, got ${shown(value)}`;
}

/** A value in a message, cut where it is long. */
export function shown(value: unknown): string {
  // JSON has numbers such as 1e400, and writes what they become as null.
  if (typeof value === 'number' && !Number.isFinite(value)) return `${value}, a number beyond ±1.8e308`;
  const text = JSON.stringify(value) ?? String(value);
  return text.length > MAX_SHOWN_LENGTH ? `${text.slice(0, MAX_SHOWN_LENGTH)}…` : text;
}

function example(node: PlainSchema | undefined): string {
  return node?.examples ? `, e.g. ${JSON.stringify(node.examples[0])}` : '';
}

/** @param path as in validation errors, `#/properties/a` */
function nodeAt(schema: PlainSchema, path: string): PlainSchema | undefined {
  return valueAt(schema, path.slice(1)) as PlainSchema | undefined;
}

/** The part of a value that a JSON pointer names. */
export function valueAt(value: unknown, pointer: string): unknown {
  let here = value;
  for (const part of pointer.split('/').slice(1)) {
    here = (here as { readonly [key: string]: unknown } | null | undefined)?.[unescapePointer(part)];
  }
  return here;
}

/** Escapes a key for a JSON pointer (RFC 6901). */
function escapePointer(key: string): string {
  return key.replaceAll('~', '~0').replaceAll('/', '~1');
}

export function unescapePointer(part: string): string {
  return part.replaceAll('~1', '/').replaceAll('~0', '~');
}

/** The validator knows the plural alone: `must not have fewer than 1 items`. */
const inSingular = (message: string): string =>
  message
    .replace(/ than 1 (item|character)s$/, ' than 1 $1')
    .replace(/ than 1 properties$/, ' than 1 property');
