import type { TSchema } from 'typebox';
import type { Json, JsonObject } from './json.ts';
import { errorsOf } from './schema/check.ts';
import { suggestion } from './suggestion.ts';

/** One thing wrong with a configuration. */
export interface ConfigProblem {
  /** Dotted path of the key, '' for the whole. */
  readonly key: string;
  /** File and line, or the command-line argument, that set it. */
  readonly where: string;
  /** The fault, and what would be right. */
  readonly message: string;
}

interface PlainSchema {
  readonly type?: string;
  readonly default?: Json;
  readonly properties?: { readonly [key: string]: PlainSchema };
  readonly patternProperties?: { readonly [pattern: string]: PlainSchema };
  readonly items?: PlainSchema;
  readonly anyOf?: readonly PlainSchema[];
  /** Property of an object that a plain text in its place sets. */
  readonly shorthand?: string;
}

/**
 * The value with the schema's defaults wherever a key is absent, inside records, lists and nullable parts too, and with objects in
 * place of the texts that may replace them.
 */
export function withDefaults(schema: TSchema, value: Json): Json {
  return fill(schema as PlainSchema, value) ?? null;
}

/** Every problem of the value, in the order of the schema; empty when it fits. */
export function checkConfig(schema: TSchema, value: Json, origin: (key: string) => string): ConfigProblem[] {
  const problems = new Map<string, ConfigProblem>();
  const add = (key: string, message: string): void => {
    const known = [...problems.keys()].some(other => other === key || other.startsWith(`${key}.`));
    if (!known) problems.set(key, { key, where: origin(key), message });
  };
  const errors = errorsOf(schema, value);
  const unions: string[] = [];
  for (const error of errors) {
    const key = dotted(error.instancePath);
    const params = error.params as { [name: string]: unknown };
    const got = JSON.stringify(valueAt(value, error.instancePath));
    if (error.keyword === 'propertyNames') continue;
    if (error.keyword === 'boolean') {
      // The validator stops after a few faults: of many unknown keys only these show all.
      const object = error.instancePath.slice(0, error.instancePath.lastIndexOf('/'));
      if (!errors.some(other => other.keyword === 'additionalProperties' && other.instancePath === object)) {
        const known = Object.keys(schemaAt(schema as PlainSchema, object)?.properties ?? {});
        add(
          key,
          `unknown key${suggestion(key.slice(key.lastIndexOf('.') + 1), known)}; known here: ${known.join(', ')}`,
        );
      }
      continue;
    }
    if (error.keyword === 'anyOf') unions.push(key);
    else if (/\/anyOf\/\d+$/.test(error.schemaPath) && error.keyword === 'type' && params.type === 'null')
      continue;
    else if (error.keyword === 'additionalProperties') {
      const known = Object.keys(schemaAt(schema as PlainSchema, error.instancePath)?.properties ?? {});
      for (const name of params.additionalProperties as string[]) {
        add(join(key, name), `unknown key${suggestion(name, known)}; known here: ${known.join(', ')}`);
      }
    } else if (error.keyword === 'required') {
      for (const name of params.requiredProperties as string[])
        add(join(key, name), 'is required and not set');
    } else if (error.keyword === 'enum') {
      const choices = params.allowedValues as unknown[];
      const near = suggestion(String(valueAt(value, error.instancePath)), choices.map(String));
      add(key, `got ${got}${near}; valid: ${choices.join(', ')}`);
    } else add(key, `${error.message}, got ${got}`);
  }
  for (const key of unions) add(key, `does not fit, got ${JSON.stringify(valueAt(value, pointer(key)))}`);
  return [...problems.values()];
}

function fill(schema: PlainSchema, value: Json | undefined): Json | undefined {
  const current = value === undefined ? structuredClone(schema.default) : value;
  if (typeof current === 'string' && schema.shorthand !== undefined) {
    return fill(schema, { [schema.shorthand]: current });
  }
  if (Array.isArray(current)) {
    return schema.items ? current.map(item => fill(schema.items!, item) ?? null) : current;
  }
  if (!isObject(current)) return current;
  if (schema.anyOf) {
    const branch = schema.anyOf.find(option => option.type === 'object');
    return branch ? fill(branch, current) : current;
  }
  const out: { [key: string]: Json } = { ...current };
  for (const [key, child] of Object.entries(schema.properties ?? {})) {
    const filled = fill(child, current[key]);
    if (filled !== undefined) out[key] = filled;
  }
  for (const child of Object.values(schema.patternProperties ?? {})) {
    for (const key of Object.keys(current)) out[key] = fill(child, current[key]) ?? null;
  }
  return out;
}

function schemaAt(schema: PlainSchema, path: string): PlainSchema | undefined {
  let here: PlainSchema | undefined = schema;
  for (const part of path.split('/').slice(1)) {
    here = here?.anyOf?.find(option => option.type === 'object' || option.type === 'array') ?? here;
    here = here?.properties?.[part] ?? here?.items ?? Object.values(here?.patternProperties ?? {})[0];
  }
  return here?.anyOf?.find(option => option.type === 'object') ?? here;
}

function valueAt(value: Json, path: string): Json | undefined {
  let here: Json | undefined = value;
  for (const part of path.split('/').slice(1)) {
    here = typeof here === 'object' && here !== null ? (here as { [key: string]: Json })[part] : undefined;
  }
  return here;
}

function dotted(path: string): string {
  return path.split('/').slice(1).join('.');
}

function pointer(key: string): string {
  return key === '' ? '' : `/${key.split('.').join('/')}`;
}

function join(key: string, name: string): string {
  return key === '' ? name : `${key}.${name}`;
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
