import type { TSchema } from 'typebox';

type Library = typeof import('typebox').Type;
type Options = Readonly<Record<string, unknown>>;

/** Property of a schema, which JSON leaves out, that says what made it. */
export const KIND = '~kind';
/** Property of a schema, which JSON leaves out, of what an object may lack. */
export const OPTIONAL = '~optional';
const UNSAFE = '~unsafe';
/** Pattern of a record's keys where any will do. */
const ANY_KEY = '^.*$';

/**
 * Builds JSON Schemas as TypeBox does, with its static types and its marks, so that TypeBox takes them for its own. The
 * library builds what TypeScript can say and loads 373 modules for it, 20 MiB and a twelfth of a second; here is what the
 * schemas of a server are made of.
 */
export const Type = {
  Array: (items: TSchema, options?: Options) => marked('Array', { type: 'array', items }, options),
  Boolean: (options?: Options) => marked('Boolean', { type: 'boolean' }, options),
  Enum: (values: readonly unknown[], options?: Options) => marked('Enum', { enum: values }, options),
  Integer: (options?: Options) => marked('Integer', { type: 'integer' }, options),
  Literal: (value: unknown, options?: Options) =>
    marked('Literal', { type: typeof value, const: value }, options),
  Null: (options?: Options) => marked('Null', { type: 'null' }, options),
  Number: (options?: Options) => marked('Number', { type: 'number' }, options),
  Object(properties: Readonly<Record<string, TSchema>>, options?: Options) {
    const needed = Object.keys(properties).filter(name => !Object.hasOwn(properties[name], OPTIONAL));
    const required = needed.length > 0 ? { required: needed } : {};
    return marked('Object', { type: 'object', ...required, properties }, options);
  },
  Optional: (schema: TSchema) => hide(copyOf(schema), OPTIONAL, true),
  Record(key: { readonly pattern?: string }, value: TSchema, options?: Options) {
    const patternProperties = { [key.pattern ?? ANY_KEY]: value };
    return marked('Record', { type: 'object', patternProperties }, options);
  },
  String: (options?: Options) => marked('String', { type: 'string' }, options),
  Tuple: (items: readonly TSchema[], options?: Options) =>
    marked('Tuple', { type: 'array', additionalItems: false, items, minItems: items.length }, options),
  Union: (anyOf: readonly TSchema[], options?: Options) => marked('Union', { anyOf }, options),
  Unknown: (options?: Options) => marked('Unknown', {}, options),
  Unsafe: (schema: TSchema) => hide(copyOf(schema), UNSAFE, null),
} as unknown as Pick<
  Library,
  | 'Array'
  | 'Boolean'
  | 'Enum'
  | 'Integer'
  | 'Literal'
  | 'Null'
  | 'Number'
  | 'Object'
  | 'Optional'
  | 'String'
  | 'Tuple'
  | 'Union'
  | 'Unknown'
  | 'Unsafe'
> & {
  /** @param key a text, with the pattern of the keys */
  Record<Value extends TSchema>(
    key: import('typebox').TString,
    value: Value,
    options?: import('typebox').TObjectOptions,
  ): import('typebox').TRecord<typeof ANY_KEY, Value>;
};

function marked(kind: string, keywords: object, options: Options | undefined): object {
  return hide({ ...keywords, ...options }, KIND, kind);
}

function copyOf(schema: object): object {
  return Object.defineProperties({}, Object.getOwnPropertyDescriptors(schema));
}

function hide(schema: object, name: string, value: unknown): object {
  return Object.defineProperty(schema, name, {
    configurable: true,
    writable: true,
    enumerable: false,
    value,
  });
}
