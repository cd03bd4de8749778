import { shown } from '../../../shared/faults.ts';
import type { Json, JsonObject } from '../../../shared/json.ts';

/** Characters as UTF-16 code units, both ends included. */
type Range = readonly [from: number, to: number];

/** States of an automaton that a pattern may need. */
const MAX_STATES = 50_000;
const LAST_CHARACTER = 0xffff;
/** Any number of times. */
const ANY = Number.POSITIVE_INFINITY;

interface Edge {
  readonly ranges: readonly Range[];
  readonly to: number;
}

/**
 * A nondeterministic automaton over characters, built in parts: each method adds a part that begins in the state `from`
 * and returns the state where it ends.
 */
export class CharacterAutomaton {
  readonly #edges: Edge[][] = [];
  readonly #empty: number[][] = [];

  /** @throws RangeError when the pattern has too many states */
  state(): number {
    if (this.#edges.length >= MAX_STATES) throw new RangeError('it takes too many states');
    this.#edges.push([]);
    this.#empty.push([]);
    return this.#edges.length - 1;
  }

  /** Connects two states without a character. */
  link(from: number, to: number): void {
    this.#empty[from].push(to);
  }

  text(from: number, text: string): number {
    let at = from;
    for (let i = 0; i < text.length; i++) at = this.set(at, [[text.charCodeAt(i), text.charCodeAt(i)]]);
    return at;
  }

  /** One of these characters. */
  set(from: number, ranges: readonly Range[]): number {
    const to = this.state();
    this.#edges[from].push({ ranges, to });
    return to;
  }

  /** One of the parts. */
  any(from: number, parts: readonly ((from: number) => number)[]): number {
    const end = this.state();
    for (const part of parts) {
      const begin = this.state();
      this.link(from, begin);
      this.link(part(begin), end);
    }
    return end;
  }

  /** The part `least` to `most` times; `most` may be infinite. */
  repeat(from: number, least: number, most: number, part: (from: number) => number): number {
    let at = from;
    for (let i = 0; i < least; i++) at = part(at);
    const end = this.state();
    if (most === ANY) {
      const loop = this.state();
      this.link(at, loop);
      this.link(part(loop), loop);
      this.link(loop, end);
      return end;
    }
    this.link(at, end);
    for (let i = least; i < most; i++) {
      at = part(at);
      this.link(at, end);
    }
    return end;
  }

  /** The states of a set and those that they reach without a character; ascending. */
  closure(states: Iterable<number>): number[] {
    const seen = new Set(states);
    for (const state of seen) for (const to of this.#empty[state]) seen.add(to);
    return [...seen].sort((a, b) => a - b);
  }

  /** First code units of classes, ascending from 0: characters of one class lead to the same states. */
  bounds(): number[] {
    const found = new Set([0]);
    for (const { ranges } of this.#edges.flat()) {
      for (const [low, high] of ranges) {
        found.add(low);
        if (high < LAST_CHARACTER) found.add(high + 1);
      }
    }
    return [...found].sort((a, b) => a - b);
  }

  /** The transitions from a set of states by character; empty where a character is not allowed. */
  waysFrom(states: readonly number[]): (character: number) => number[] {
    const edges = states.flatMap(state => this.#edges[state]);
    return character => {
      const reached = edges.filter(({ ranges }) =>
        ranges.some(([low, high]) => character >= low && character <= high),
      );
      return reached.length === 0 ? [] : this.closure(reached.map(({ to }) => to));
    };
  }
}

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
  array: ['items', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
  integer: [],
  number: [],
  boolean: [],
  null: [],
};

/**
 * Adds the JSON texts that fit a schema to an automaton: without white space, properties in the order of the schema.
 * @throws RangeError naming the keyword that an automaton cannot hold
 */
export function addSchema(automaton: CharacterAutomaton, from: number, schema: JsonObject): number {
  return new SchemaWriter(automaton, schema).value(from, schema, 0);
}

class SchemaWriter {
  readonly #a: CharacterAutomaton;
  readonly #root: JsonObject;
  /** Required keys of object schemas, which many `$ref`s may lead to. */
  readonly #required = new Map<JsonObject, ReadonlySet<string>>();

  constructor(automaton: CharacterAutomaton, root: JsonObject) {
    this.#a = automaton;
    this.#root = root;
  }

  value(from: number, given: Json | undefined, depth: number): number {
    if (given === undefined || given === true) return this.#free(from, FREE_DEPTH);
    if (typeof given !== 'object' || given === null || Array.isArray(given)) {
      throw new RangeError(`a schema must be an object, got ${JSON.stringify(given)}`);
    }
    if (depth > DEEPEST_SCHEMA) throw new RangeError('it is nested too deep, or refers to itself');
    const schema = given as JsonObject;
    if ('$ref' in schema) return this.value(from, this.#referred(schema.$ref), depth + 1);
    if ('const' in schema) return this.#a.text(from, JSON.stringify(schema.const));
    if ('enum' in schema) {
      const values = schema.enum as readonly Json[];
      return this.#a.any(
        from,
        values.map(value => begin => this.#a.text(begin, JSON.stringify(value))),
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
        return this.#integer(from);
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
      const key = `${JSON.stringify(name)}:`;
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

  #string(from: number, least: number, most: number): number {
    const a = this.#a;
    const character = (begin: number) =>
      a.any(begin, [
        at => a.set(at, PLAIN),
        at => a.set(a.text(at, '\\'), charactersOf('"\\/bfnrt')),
        at => a.repeat(a.text(at, '\\u'), 4, 4, digit => a.set(digit, HEXADECIMAL)),
      ]);
    return a.text(a.repeat(a.text(from, '"'), least, most, character), '"');
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

function count(value: Json | undefined, otherwise: number, most: number, name: string): number {
  if (value === undefined) return otherwise;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= most) return value;
  throw new RangeError(`${name} must be a whole number up to ${most}, got ${shown(value)}`);
}
