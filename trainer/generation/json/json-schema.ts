import { shown } from '../../../shared/faults.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { ANY, type CharacterAutomaton, type Range } from './automaton.ts';

/** Levels of a value that a schema does not describe: unlimited nesting is not a regular language. */
const FREE_DEPTH = 2;
const DEEPEST_SCHEMA = 24;
const LONGEST_STRING = 512;
const MAX_ITEMS = 256;
/** Keys of a `$ref`. */
const DEEPEST_REFERENCE = 64;

const charactersOf = (text: string): Range[] => [...text].map(c => [c.charCodeAt(0), c.charCodeAt(0)]);
const DIGITS: readonly Range[] = [[0x30, 0x39]];
const NOT_ZERO: readonly Range[] = [[0x31, 0x39]];
const HEXADECIMAL: readonly Range[] = [
  [0x30, 0x39],
  [0x41, 0x46],
  [0x61, 0x66],
];
/** All but controls, `"` and `\`. */
const PLAIN: readonly Range[] = [
  [0x20, 0x21],
  [0x23, 0x5b],
  [0x5d, 0xffff],
];
/** The same without `<` and `|`. */
const UNMARKED: readonly Range[] = [
  [0x20, 0x21],
  [0x23, 0x3b],
  [0x3d, 0x5b],
  [0x5d, 0x7b],
  [0x7d, 0xffff],
];
/** Most values of an integer with a least and a greatest one. */
const MAX_INTEGERS = 1024;

/** Keywords that do not restrict the texts. */
const SILENT: ReadonlySet<string> = new Set([
  'title',
  'description',
  'default',
  'examples',
  '$schema',
  '$id',
  '$defs',
  'definitions',
  '$comment',
  'deprecated',
  'readOnly',
  'writeOnly',
]);

const KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
  integer: ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'],
  number: [],
  boolean: [],
  null: [],
};

/** Texts around JSON in which `<` and `|` have a meaning, so that JSON escapes them. */
export interface Framing {
  readonly before: string;
  readonly after: string;
}

/** JSON without `<` and `|`. */
export const unmarkedJson = (value: Json): string =>
  JSON.stringify(value).replaceAll(/[<|]/g, c => `\\u00${c.charCodeAt(0).toString(16)}`);

/**
 * Adds the JSON texts that fit a schema to an automaton: without white space, properties in the order of the schema.
 * @throws RangeError naming the keyword that an automaton cannot hold
 */
export function addSchema(
  automaton: CharacterAutomaton,
  from: number,
  schema: JsonObject,
  framing?: Framing,
): number {
  const writer = new SchemaWriter(automaton, schema, framing !== undefined);
  const end = writer.value(automaton.text(from, framing?.before ?? ''), schema, 0);
  return automaton.text(end, framing?.after ?? '');
}

class SchemaWriter {
  readonly #a: CharacterAutomaton;
  readonly #root: JsonObject;
  readonly #json: (value: Json) => string;
  readonly #plain: readonly Range[];
  /** Required keys of object schemas, which many `$ref`s may lead to. */
  readonly #required = new Map<JsonObject, ReadonlySet<string>>();

  constructor(automaton: CharacterAutomaton, root: JsonObject, isFramed: boolean) {
    this.#a = automaton;
    this.#root = root;
    this.#json = isFramed ? unmarkedJson : JSON.stringify;
    this.#plain = isFramed ? UNMARKED : PLAIN;
  }

  value(from: number, given: Json | undefined, depth: number): number {
    if (given === undefined || given === true) return this.#free(from, FREE_DEPTH);
    if (typeof given !== 'object' || given === null || Array.isArray(given)) {
      throw new RangeError(`a schema must be an object, got ${JSON.stringify(given)}`);
    }
    if (depth > DEEPEST_SCHEMA) throw new RangeError('it is nested too deep, or refers to itself');
    const schema = given as JsonObject;
    if ('$ref' in schema) return this.value(from, this.#referred(schema.$ref), depth + 1);
    if ('const' in schema) return this.#a.text(from, this.#json(schema.const));
    if ('enum' in schema) {
      const values = schema.enum as readonly Json[];
      return this.#a.any(
        from,
        values.map(value => begin => this.#a.text(begin, this.#json(value))),
      );
    }
    const alternatives = schema.anyOf ?? schema.oneOf;
    if (Array.isArray(alternatives)) {
      this.#refuseOthers(schema, ['anyOf', 'oneOf', 'type']);
      return this.#a.any(
        from,
        alternatives.map(one => begin => this.value(begin, one, depth + 1)),
      );
    }
    const types = schema.type === undefined ? [] : ([schema.type].flat() as string[]);
    if (types.length === 0 && 'properties' in schema) types.push('object');
    if (types.length === 0) {
      this.#refuseOthers(schema, []);
      return this.#free(from, FREE_DEPTH);
    }
    this.#refuseOthers(schema, ['type', ...types.flatMap(type => KEYWORDS[type] ?? [])]);
    return this.#a.any(
      from,
      types.map(type => begin => this.#typed(begin, type, schema, depth)),
    );
  }

  #typed(from: number, type: string, schema: JsonObject, depth: number): number {
    const a = this.#a;
    switch (type) {
      case 'object':
        return this.#object(from, schema, depth);
      case 'array': {
        if (schema.prefixItems !== undefined) return this.#tuple(from, schema, depth);
        const most = count(schema.maxItems, ANY, MAX_ITEMS, 'maxItems');
        const item = (begin: number) => this.value(begin, schema.items, depth + 1);
        return this.#list(from, count(schema.minItems, 0, MAX_ITEMS, 'minItems'), most, item);
      }
      case 'string': {
        const least = count(schema.minLength, 0, LONGEST_STRING, 'minLength');
        const most = count(schema.maxLength, ANY, LONGEST_STRING, 'maxLength');
        return this.#string(from, least, most);
      }
      case 'integer':
        return this.#bounded(from, schema);
      case 'number':
        return this.#number(from);
      case 'boolean':
        return a.any(from, [begin => a.text(begin, 'true'), begin => a.text(begin, 'false')]);
      case 'null':
        return a.text(from, 'null');
      default:
        throw new RangeError(`type ${JSON.stringify(type)} is not known`);
    }
  }

  /** Properties in their order; optional ones may be left out. */
  #object(from: number, schema: JsonObject, depth: number): number {
    const a = this.#a;
    const { additionalProperties: more } = schema;
    const properties = Object.entries((schema.properties ?? {}) as JsonObject);
    const required = this.#requiredOf(schema);
    if (properties.length === 0 && more !== false)
      return this.#members(from, at => this.value(at, more, depth + 1));
    if (more !== undefined && typeof more !== 'boolean') {
      throw new RangeError('additionalProperties with a schema cannot be used with properties');
    }
    let unbegun: number | null = a.text(from, '{');
    let begun: number | null = null;
    for (const [name, value] of properties) {
      const key = `${this.#json(name)}:`;
      const after = a.state();
      if (unbegun !== null) a.link(this.value(a.text(unbegun, key), value, depth + 1), after);
      if (begun !== null) a.link(this.value(a.text(begun, `,${key}`), value, depth + 1), after);
      if (required.has(name)) unbegun = null;
      else if (begun !== null) a.link(begun, after);
      begun = after;
    }
    const ends = [unbegun, begun].filter(state => state !== null);
    const end = a.state();
    for (const state of ends) a.link(a.text(state, '}'), end);
    return end;
  }

  /** @throws RangeError for anything but a list of its properties */
  #requiredOf(schema: JsonObject): ReadonlySet<string> {
    const known = this.#required.get(schema);
    if (known !== undefined) return known;
    const { required = [], properties = {} } = schema;
    if (!Array.isArray(required)) throw new RangeError('required must be a list of names');
    const other = required.find(
      name => typeof name !== 'string' || !Object.hasOwn(properties as object, name),
    );
    if (other !== undefined) {
      throw new RangeError(`required names ${JSON.stringify(other)}, which is not one of the properties`);
    }
    const names = new Set(required as string[]);
    this.#required.set(schema, names);
    return names;
  }

  /** An object with properties of any name, each with such a value. */
  #members(from: number, value: (from: number) => number): number {
    const a = this.#a;
    const member = (begin: number) => value(a.text(this.#string(begin, 0, ANY), ':'));
    return this.#separated(from, ['{', '}'], 0, ANY, member);
  }

  #list(from: number, least: number, most: number, item: (from: number) => number): number {
    return this.#separated(from, ['[', ']'], least, most, item);
  }

  #separated(
    from: number,
    [open, close]: readonly [string, string],
    least: number,
    most: number,
    item: (from: number) => number,
  ): number {
    const a = this.#a;
    const begin = a.text(from, open);
    const end = a.state();
    if (least === 0) a.link(a.text(begin, close), end);
    if (most === 0) return end;
    const more = (at: number) => item(a.text(at, ','));
    a.link(a.text(a.repeat(item(begin), Math.max(0, least - 1), most - 1, more), close), end);
    return end;
  }

  /** A list of a fixed length, each item with a schema. */
  #tuple(from: number, { prefixItems, minItems, maxItems }: JsonObject, depth: number): number {
    const a = this.#a;
    const items = prefixItems as readonly Json[];
    if (!Array.isArray(items) || items.length === 0 || minItems !== items.length || maxItems !== minItems) {
      throw new RangeError('prefixItems must list as many items as minItems and maxItems say');
    }
    const end = items.reduce<number>(
      (at, item, i) => this.value(a.text(at, i === 0 ? '[' : ','), item, depth + 1),
      from,
    );
    return a.text(end, ']');
  }

  #string(from: number, least: number, most: number): number {
    const a = this.#a;
    const character = (begin: number) =>
      a.any(begin, [
        at => a.set(at, this.#plain),
        at => a.set(a.text(at, '\\'), charactersOf('"\\/bfnrt')),
        at => a.repeat(a.text(at, '\\u'), 4, 4, digit => a.set(digit, HEXADECIMAL)),
      ]);
    return a.text(a.repeat(a.text(from, '"'), least, most, character), '"');
  }

  /** An integer, one of a list where it has bounds. */
  #bounded(from: number, schema: JsonObject): number {
    const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = schema;
    if ([minimum, maximum, above, below].every(bound => bound === undefined)) return this.#integer(from);
    const least = Math.max(...numbers(minimum).map(Math.ceil), ...numbers(above).map(n => Math.floor(n) + 1));
    const most = Math.min(...numbers(maximum).map(Math.floor), ...numbers(below).map(n => Math.ceil(n) - 1));
    const count = most - least + 1;
    if (!(count > 0 && count <= MAX_INTEGERS)) {
      throw new RangeError(
        `an integer with a minimum or maximum needs both, with 1 to ${MAX_INTEGERS} values`,
      );
    }
    return this.#a.any(
      from,
      Array.from({ length: count }, (_, i) => begin => this.#a.text(begin, String(least + i))),
    );
  }

  #integer(from: number): number {
    const a = this.#a;
    const signed = a.repeat(from, 0, 1, at => a.text(at, '-'));
    return a.any(signed, [
      at => a.text(at, '0'),
      at => a.repeat(a.set(at, NOT_ZERO), 0, ANY, digit => a.set(digit, DIGITS)),
    ]);
  }

  #number(from: number): number {
    const a = this.#a;
    const digits = (at: number) => a.repeat(at, 1, ANY, digit => a.set(digit, DIGITS));
    const fraction = a.repeat(this.#integer(from), 0, 1, at => digits(a.text(at, '.')));
    return a.repeat(fraction, 0, 1, at => {
      const exponent = a.set(at, charactersOf('eE'));
      return digits(a.repeat(exponent, 0, 1, sign => a.set(sign, charactersOf('+-'))));
    });
  }

  /** Any value, lists and objects at most `depth` levels deep. */
  #free(from: number, depth: number): number {
    const inside = (begin: number) => this.#free(begin, depth - 1);
    const nested = [
      (begin: number) => this.#list(begin, 0, ANY, inside),
      (begin: number) => this.#members(begin, inside),
    ];
    return this.#a.any(from, [
      ...['true', 'false', 'null'].map(word => (begin: number) => this.#a.text(begin, word)),
      begin => this.#number(begin),
      begin => this.#string(begin, 0, ANY),
      ...(depth === 0 ? [] : nested),
    ]);
  }

  #referred(reference: Json): Json {
    if (reference === '#') return this.#root;
    const path =
      typeof reference === 'string' && reference.startsWith('#/') ? reference.slice(2).split('/') : null;
    if ((path?.length ?? 0) > DEEPEST_REFERENCE)
      throw new RangeError(`a $ref has more than ${DEEPEST_REFERENCE} keys`);
    let value: Json | undefined = path === null ? undefined : this.#root;
    for (const key of path ?? []) {
      value = Object.hasOwn((value ?? {}) as object, key) ? (value as JsonObject)[key] : undefined;
    }
    if (value === undefined)
      throw new RangeError(`$ref ${JSON.stringify(reference)} points to nothing in the schema`);
    return value;
  }

  #refuseOthers(schema: JsonObject, known: readonly string[]): void {
    const other = Object.keys(schema).find(key => !known.includes(key) && !SILENT.has(key));
    if (other !== undefined) throw new RangeError(`the keyword ${JSON.stringify(other)} is not supported`);
  }
}

const numbers = (bound: Json | undefined): number[] => (bound === undefined ? [] : [Number(bound)]);

function count(value: Json | undefined, otherwise: number, most: number, name: string): number {
  if (value === undefined) return otherwise;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value;
  throw new RangeError(`${name} must be a whole number up to ${most}, got ${shown(value)}`);
}
