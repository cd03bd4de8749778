import { createRequire } from 'node:module';
import type { TSchema } from 'typebox';
import type { TLocalizedValidationError } from 'typebox/error';
import { KIND, OPTIONAL } from './type.ts';

/** The validator, loaded for the first check: a server that has just started needs none. */
let library: typeof import('typebox/schema') | undefined;
function loaded(): typeof import('typebox/schema') {
  library ??= createRequire(import.meta.url)('typebox/schema') as typeof import('typebox/schema');
  return library;
}

/** A check that is compiled on first use. */
export interface CompiledCheck {
  check(value: unknown): boolean;
  /** The faults of a value; empty when it passes. */
  errors(value: unknown): readonly TLocalizedValidationError[];
}

/** A compiled check for many values, much faster than {@link fits}. */
export function compiled(schema: TSchema): CompiledCheck {
  let validator: import('typebox/schema').Validator | undefined;
  const compile = () => {
    validator ??= loaded().Compile(schema) as import('typebox/schema').Validator;
    return validator;
  };
  return {
    check: value => compile().Check(value),
    errors: value => compile().Errors(value)[1],
  };
}

/** True if a value fits a schema. */
export function fits(schema: TSchema, value: unknown): boolean {
  return loaded().Check(schema, value);
}

/** The faults of a value. */
export function errorsOf(schema: TSchema, value: unknown): readonly TLocalizedValidationError[] {
  return loaded().Errors(schema, value)[1];
}

/** A schema with TypeBox's markers. */
interface MarkedSchema extends TSchema {
  readonly [KIND]?: string;
  readonly default?: unknown;
  readonly properties: Readonly<Record<string, MarkedSchema>>;
  readonly patternProperties: Readonly<Record<string, MarkedSchema>>;
  readonly additionalProperties?: boolean | MarkedSchema;
  readonly items: MarkedSchema & readonly MarkedSchema[];
  readonly prefixItems?: readonly MarkedSchema[];
  readonly anyOf: readonly MarkedSchema[];
}

type Members = Record<string, unknown>;

/**
 * Adds the schema's defaults wherever something is absent, like TypeBox's `Value.Default`; changes the value in place.
 * The server's schemas are handled here, because the library loads 440 modules for it. Schemas with references come
 * only from programs that use the server as a package, and are passed to the library.
 */
export function fillDefaults(schema: TSchema, value: unknown): unknown {
  return fill(schema as MarkedSchema, value);
}

function fill(schema: MarkedSchema, given: unknown): unknown {
  const value = given === undefined ? ownDefault(schema) : given;
  switch (schema[KIND]) {
    case 'Array':
      return Array.isArray(value) ? fillElements(value, () => schema.items) : value;
    case 'Tuple': {
      const items = schema.prefixItems ?? schema.items;
      return Array.isArray(value) ? fillElements(value, at => items[at], items.length) : value;
    }
    case 'Object':
      return isObject(value) ? fillObject(schema, value) : value;
    case 'Record':
      return isObject(value) ? fillRecord(schema, value) : value;
    case 'Union':
      return fillUnion(schema.anyOf, value);
    case 'Cyclic':
    case 'Intersect':
    case 'Ref':
      return (createRequire(import.meta.url)('typebox/value') as typeof import('typebox/value')).Default(
        schema,
        value,
      );
    default:
      return value;
  }
}

function ownDefault({ default: value }: MarkedSchema): unknown {
  return typeof value === 'function' ? value() : structuredClone(value);
}

function fillElements(
  values: unknown[],
  schemaAt: (index: number) => MarkedSchema | undefined,
  length = values.length,
): unknown[] {
  for (let at = 0; at < length; at++) {
    const schema = schemaAt(at);
    if (schema) values[at] = fill(schema, values[at]);
  }
  return values;
}

function fillObject({ properties, additionalProperties }: MarkedSchema, value: Members): Members {
  for (const [name, schema] of Object.entries(properties)) {
    const filled = fill(schema, value[name]);
    if (filled === undefined && (Object.hasOwn(schema, OPTIONAL) || !('default' in schema))) continue;
    value[name] = filled;
  }
  fillOthers(value, additionalProperties, name => Object.hasOwn(properties, name));
  return value;
}

function fillRecord({ patternProperties, additionalProperties }: MarkedSchema, value: Members): Members {
  const [[pattern, schema]] = Object.entries(patternProperties);
  const keys = new RegExp(pattern);
  for (const name of 'default' in schema ? Object.keys(value) : []) {
    if (keys.test(name)) value[name] = fill(schema, value[name]);
  }
  fillOthers(value, additionalProperties, name => keys.test(name));
  return value;
}

/** Adds the defaults of all members of an intersection. */
function fillOthers(
  value: Members,
  schema: boolean | MarkedSchema | undefined,
  isNamed: (name: string) => boolean,
): void {
  if (typeof schema !== 'object') return;
  for (const name of Object.keys(value)) {
    if (!isNamed(name)) value[name] = fill(schema, value[name]);
  }
}

/** Adds the defaults of the first union member that then fits. */
function fillUnion(schemas: readonly MarkedSchema[], value: unknown): unknown {
  for (const schema of schemas) {
    const filled = fill(schema, structuredClone(value));
    if (fits(schema, filled)) return filled;
  }
  return value;
}

function isObject(value: unknown): value is Members {
  return typeof value === 'object' && value !== null;
}
