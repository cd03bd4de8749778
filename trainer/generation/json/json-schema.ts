import { shown } from '../../../shared/faults.ts';
import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { ANY, type CharacterAutomaton, charactersOf, type Range } from './automaton.ts';
import { addInteger, addNumber } from './numbers.ts';
import { common, type Pattern, parsePattern, withLengths } from './pattern.ts';

/** Levels of a value that a schema does not describe: unlimited nesting is not a regular language. */
const FREE_DEPTH = 2;
export const DEEPEST_SCHEMA = 24;
const LONGEST_STRING = 512;
const MAX_ITEMS = 256;
/** Keys of a `$ref`. */
const DEEPEST_REFERENCE = 64;

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
/** Characters that JSON may escape are among the first so many. */
const ASCII = 0x80;
const BOUNDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];

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
  string: ['minLength', 'maxLength', 'pattern'],
  integer: BOUNDS,
  number: BOUNDS,
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
  /** Required keys of object schemas, which many `$ref`s may lead to; and patterns and their characters as JSON has them. */
  readonly #required = new Map<JsonObject, ReadonlySet<string>>();
  readonly #patterns = new Map<Json | undefined, Pattern>();
  readonly #characters = new Map<readonly Range[], { plain: readonly Range[]; escaped: readonly string[] }>();

  constructor(automaton: CharacterAutomaton, root: JsonObject, isFramed: boolean) {
    this.#a = automaton;
    this.#root = root;
    this.#json = isFramed ? unmarkedJson : JSON.stringify;
    this.#plain = isFramed ? UNMARKED : PLAIN;
  }

  value(from: number, given: Json | undefined, depth: number): number {
    if (given === undefined || given === true) return this.#free(from, FREE_DEPTH);
    if (!isObject(given)) throw new RangeError(`a schema must be an object, got ${JSON.stringify(given)}`);
    if (depth > DEEPEST_SCHEMA) throw new RangeError('it is nested too deep, or refers to itself');
    const schema = given;
    if ('$ref' in schema) return this.value(from, referred(schema.$ref, this.#root), depth + 1);
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
        if (schema.pattern !== undefined) return this.#matching(from, schema);
        const least = count(schema.minLength, 0, LONGEST_STRING, 'minLength');
        const most = count(schema.maxLength, ANY, LONGEST_STRING, 'maxLength');
        return this.#string(from, least, most);
      }
      case 'integer':
        return addInteger(a, from, schema);
      case 'number':
        return addNumber(a, from, schema);
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

  /** A string with a pattern, in lengths that are within those of the schema. */
  #matching(from: number, { pattern, minLength, maxLength }: JsonObject): number {
    const a = this.#a;
    const parsed = this.#patterns.get(pattern) ?? parsePattern(String(pattern));
    this.#patterns.set(pattern, parsed);
    const found = withLengths(
      parsed,
      count(minLength, 0, LONGEST_STRING, 'minLength'),
      count(maxLength, ANY, Number.MAX_SAFE_INTEGER, 'maxLength'),
    );
    return a.text(this.#texts(a.text(from, '"'), found), '"');
  }

  #texts(from: number, pattern: Pattern): number {
    const a = this.#a;
    switch (pattern.type) {
      case 'characters':
        return this.#written(from, pattern.ranges);
      case 'sequence':
        return pattern.parts.reduce((at, part) => this.#texts(at, part), from);
      case 'any':
        return a.any(
          from,
          pattern.parts.map(part => begin => this.#texts(begin, part)),
        );
      case 'repeat':
        return a.repeat(from, pattern.least, pattern.most, at => this.#texts(at, pattern.part));
    }
  }

  /** One of these characters in a string: as it is, or as JSON escapes it. */
  #written(from: number, ranges: readonly Range[]): number {
    const { plain, escaped } = this.#characters.get(ranges) ?? this.#spelled(ranges);
    return this.#a.any(from, [
      ...(plain.length > 0 ? [(at: number) => this.#a.set(at, plain)] : []),
      ...escaped.map(text => (at: number) => this.#a.text(at, text)),
    ]);
  }

  #spelled(ranges: readonly Range[]) {
    const plain = common(ranges, this.#plain);
    const isIn = (code: number, some: readonly Range[]) =>
      some.some(([low, high]) => code >= low && code <= high);
    const escaped = Array.from({ length: ASCII }, (_, code) => code)
      .filter(code => isIn(code, ranges) && !isIn(code, plain))
      .map(code => this.#json(String.fromCharCode(code)).slice(1, -1));
    const spelled = { plain, escaped };
    this.#characters.set(ranges, spelled);
    return spelled;
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
      begin => addNumber(this.#a, begin, {}),
      begin => this.#string(begin, 0, ANY),
      ...(depth === 0 ? [] : nested),
    ]);
  }

  #refuseOthers(schema: JsonObject, known: readonly string[]): void {
    const other = Object.keys(schema).find(key => !known.includes(key) && !SILENT.has(key));
    if (other !== undefined) throw new RangeError(`the keyword ${JSON.stringify(other)} is not supported`);
  }
}

/** @throws RangeError where a `$ref` points to nothing in its schema */
export function referred(reference: Json, root: JsonObject): Json {
  if (reference === '#') return root;
  const path =
    typeof reference === 'string' && reference.startsWith('#/') ? reference.slice(2).split('/') : null;
  if ((path?.length ?? 0) > DEEPEST_REFERENCE)
    throw new RangeError(`a $ref has more than ${DEEPEST_REFERENCE} keys`);
  let value: Json | undefined = path === null ? undefined : root;
  for (const key of path ?? []) {
    value = Object.hasOwn((value ?? {}) as object, key) ? (value as JsonObject)[key] : undefined;
  }
  if (value === undefined)
    throw new RangeError(`$ref ${JSON.stringify(reference)} points to nothing in the schema`);
  return value;
}

function count(value: Json | undefined, otherwise: number, most: number, name: string): number {
  if (value === undefined) return otherwise;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value;
  throw new RangeError(`${name} must be a whole number up to ${most}, got ${shown(value)}`);
}
