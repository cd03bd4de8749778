import type { TSchema } from 'typebox';
import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { fillDefaults, fits } from '../../../shared/schema/check.ts';
import { Type } from '../../../shared/schema/type.ts';
import { type DefinitionFaults, escapePointer } from './fault.ts';

/** Property names without special meaning in JavaScript. */
const PROPERTY_NAME = /^(?!(?:__proto__|constructor|prototype)$)[A-Za-z_][A-Za-z0-9_-]{0,63}$/;
const DEEPEST = 8;
const MAX_NODES = 500;
const MAX_CHOICES = 1000;

const NOTES = ['title', 'description', 'default'];
const ANY = Type.Unknown();

const BOUNDS = ['minimum', 'maximum', 'exclusiveMinimum', 'exclusiveMaximum'];

/** Keywords by type. Those that a hostile schema could make slow or circular (`pattern`, `$ref`…) are excluded. */
const KEYWORDS: { readonly [type: string]: readonly string[] } = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength', 'enum'],
  number: [...BOUNDS, 'enum'],
  integer: [...BOUNDS, 'enum'],
  boolean: [],
  null: [],
};
const NUMERIC = new Set([...BOUNDS, 'minItems', 'maxItems', 'minLength', 'maxLength']);

/** Types of which values may be listed, and these in words. */
const LISTED = { string: 'strings', number: 'numbers', integer: 'whole numbers' } as const;

/** The types and keywords that schemas of custom environments may use. */
const SUBSET = Object.entries(KEYWORDS)
  .map(([type, keywords]) => (keywords.length > 0 ? `${type} (${keywords.join(', ')})` : type))
  .join('; ');

/**
 * Schema of a custom environment's configuration, options or actions: a subset of JSON Schema that is quick to check
 * for any content. Objects allow only the properties they name.
 * @param pointer its position in the definition, for faults
 */
export function compileSubset(schema: Json, pointer: string, faults: DefinitionFaults): TSchema {
  return new SubsetCompiler(faults).compile(schema, pointer, 0);
}

/** Compiles the parts of one schema and counts them. */
class SubsetCompiler {
  readonly #faults: DefinitionFaults;
  #nodes = 0;

  constructor(faults: DefinitionFaults) {
    this.#faults = faults;
  }

  compile(node: Json, at: string, depth: number): TSchema {
    const wrong = (detail: string, where = at): TSchema => {
      this.#faults.add(where, detail);
      return ANY;
    };
    if (!isObject(node)) return wrong('a schema is an object');
    if (depth > DEEPEST) return wrong(`schemas are nested at most ${DEEPEST} deep`);
    if (++this.#nodes > MAX_NODES) return wrong(`a schema has at most ${MAX_NODES} parts`);
    const { type } = node;
    if (typeof type !== 'string' || !Object.hasOwn(KEYWORDS, type)) {
      return wrong(`must be one of ${Object.keys(KEYWORDS).join(', ')}`, `${at}/type`);
    }
    for (const [key, value] of Object.entries(node)) {
      if (key !== 'type' && !NOTES.includes(key) && !KEYWORDS[type].includes(key)) {
        wrong(`unknown keyword "${key}"; a schema may use: ${SUBSET}`, `${at}/${escapePointer(key)}`);
      }
      if (NUMERIC.has(key) && typeof value !== 'number') wrong('must be a number', `${at}/${key}`);
    }
    const compiled = this.#ofType(type, node, at, depth, wrong);
    if (
      node.default !== undefined &&
      !fits(compiled, fillDefaults(compiled, structuredClone(node.default)))
    ) {
      wrong('the default does not fit its own schema', `${at}/default`);
    }
    return compiled;
  }

  #ofType(
    type: string,
    node: JsonObject,
    at: string,
    depth: number,
    wrong: (detail: string, where?: string) => TSchema,
  ): TSchema {
    const limits = Object.fromEntries(
      Object.entries(node).filter(([key]) => NUMERIC.has(key) || NOTES.includes(key)),
    );
    switch (type) {
      case 'object':
        return this.#object(node, limits, at, depth, wrong);
      case 'array':
        if (node.prefixItems !== undefined) return this.#tuple(node, limits, at, depth, wrong);
        return Type.Array(
          node.items === undefined ? ANY : this.compile(node.items, `${at}/items`, depth + 1),
          limits,
        );
      case 'string':
      case 'number':
      case 'integer': {
        const plain = { string: Type.String, number: Type.Number, integer: Type.Integer }[type](limits);
        if (node.enum === undefined) return plain;
        const choices = Array.isArray(node.enum) ? node.enum : [];
        if (choices.length === 0 || choices.length > MAX_CHOICES || !choices.every(one => fits(plain, one))) {
          return wrong(
            `must be a list of 1 to ${MAX_CHOICES} ${LISTED[type]} within the other keywords`,
            `${at}/enum`,
          );
        }
        return Type.Enum(choices, { type, ...limits });
      }
      case 'boolean':
        return Type.Boolean(limits);
      default:
        return Type.Null(limits);
    }
  }

  /** A list of a fixed length, each item with its own schema. */
  #tuple(
    { prefixItems, items, minItems, maxItems }: JsonObject,
    limits: JsonObject,
    at: string,
    depth: number,
    wrong: (detail: string, where?: string) => TSchema,
  ): TSchema {
    if (!Array.isArray(prefixItems)) return wrong('must be a list of schemas', `${at}/prefixItems`);
    const { length } = prefixItems;
    if (items !== undefined || minItems !== length || maxItems !== length) {
      return wrong(
        'takes minItems and maxItems, both the number of its schemas, and no items',
        `${at}/prefixItems`,
      );
    }
    const parts = prefixItems.map((part: Json, i) => this.compile(part, `${at}/prefixItems/${i}`, depth + 1));
    return Type.FixedList(parts, limits);
  }

  #object(
    node: JsonObject,
    notes: object,
    at: string,
    depth: number,
    wrong: (detail: string, where?: string) => TSchema,
  ): TSchema {
    const { properties = {}, required = [], additionalProperties } = node;
    if (additionalProperties !== undefined && additionalProperties !== false) {
      wrong('objects take only the properties they name', `${at}/additionalProperties`);
    }
    if (!isObject(properties)) return wrong('must be an object of schemas', `${at}/properties`);
    if (!isTextList(required)) return wrong('must be a list of names', `${at}/required`);
    for (const name of required) {
      if (!Object.hasOwn(properties, name)) wrong(`"${name}" is not one of the properties`, `${at}/required`);
    }
    const entries = Object.entries(properties).flatMap(([name, property]): [string, TSchema][] => {
      const where = `${at}/properties/${escapePointer(name)}`;
      if (!PROPERTY_NAME.test(name)) {
        wrong('a property is named with letters, digits, _ and -, beginning with a letter', where);
        return [];
      }
      const compiled = this.compile(property, where, depth + 1);
      const optional = !required.includes(name) && (property as JsonObject).default === undefined;
      return [[name, optional ? Type.Optional(compiled) : compiled]];
    });
    return Type.Object(Object.fromEntries(entries), { ...notes, additionalProperties: false });
  }
}

function isTextList(value: Json): value is readonly string[] {
  return Array.isArray(value) && value.every(item => typeof item === 'string');
}
