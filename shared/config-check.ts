import type { TSchema } from 'typebox';
import { type Fault, faultsOf, shown, unescapePointer, valueAt } from './faults.ts';
import { isObject, type Json } from './json.ts';
import { errorsOf } from './schema/check.ts';
import { suggestion } from './text.ts';

/** One fault of a configuration. */
export interface ConfigProblem {
  /** Dotted path of the key; '' for the whole configuration. */
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
  /** Property that a plain text sets when it replaces an object. */
  readonly shorthand?: string;
}

/**
 * The value with the schema's defaults for every absent key, also inside records, lists and nullable parts. A text in
 * place of an object becomes that object.
 */
export function withDefaults(schema: TSchema, value: Json): Json {
  return fill(schema as PlainSchema, value) ?? null;
}

/** Every fault of the value, in schema order; empty when the value fits. */
export function checkConfig(schema: TSchema, value: Json, origin: (key: string) => string): ConfigProblem[] {
  const problems = new Map<string, ConfigProblem>();
  const add = (key: string, message: string): void => {
    const known = [...problems.keys()].some(other => other === key || other.startsWith(`${key}.`));
    if (!known) problems.set(key, { key, where: origin(key), message });
  };
  for (const fault of faultsOf(schema, value, errorsOf(schema, value))) {
    add(keyOf(fault), messageOf(fault, valueAt(value, fault.pointer)));
  }
  return [...problems.values()];
}

function messageOf({ message, expected, choices, key }: Fault, value: unknown): string {
  if (key?.isKnown) return 'is required and not set';
  if (key) return `unknown key${suggestion(key.name, key.known)}; known here: ${key.known.join(', ')}`;
  const got = shown(value);
  if (choices)
    return `got ${got}${suggestion(String(value), choices.map(String))}; valid: ${choices.join(', ')}`;
  return expected === undefined ? message : `${expected}, got ${got}`;
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

/** Dotted path of the key at fault. */
function keyOf({ pointer, key }: Fault): string {
  const path = pointer.split('/').slice(1).map(unescapePointer);
  if (key) path[path.length - 1] = key.name;
  return path.join('.');
}
