import type { TProperties, TSchema } from 'typebox';

type Library = typeof import('typebox').Type;
type Options = Readonly<Record<string, unknown>>;

/** Property of a schema, omitted from JSON, that names its kind. */
export const KIND = '~kind';
/** Property of a schema, omitted from JSON, that marks an optional property. */
export const OPTIONAL = '~optional';
const UNSAFE = '~unsafe';
/** Pattern of a record's keys when any key is allowed. */
const ANY_KEY = '^.*$';

/**
 * Builds JSON Schemas with TypeBox's static types and markers, so that TypeBox accepts them. TypeBox itself loads 373
 * modules (20 MiB, a twelfth of a second); this file has the part that the server's schemas need.
 */
export const Type = {
  Array: (items: TSchema, options?: Options) => marked('Array', { type: 'array', items }, options),
  Boolean: (options?: Options) => marked('Boolean', { type: 'boolean' }, options),
  Enum: (values: readonly unknown[], options?: Options) => marked('Enum', { enum: values }, options),
  FixedList: (prefixItems: readonly TSchema[], options?: Options) =>
    marked('Tuple', { type: 'array', prefixItems }, options),
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
  /** A list of items with a schema each, by the keyword of JSON Schema since 2020-12; the options give its length. */
  FixedList(prefixItems: readonly TSchema[], options?: Options): TSchema;
  /** @param key a text schema, with the pattern of the keys */
  Record<Value extends TSchema>(
    key: import('typebox').TString,
    value: Value,
    options?: import('typebox').TObjectOptions,
  ): import('typebox').TRecord<typeof ANY_KEY, Value>;
};

/** An object that rejects unknown keys. */
export const closed = <P extends TProperties>(properties: P, options: Options = {}) =>
  Type.Object(properties, { additionalProperties: false, ...options });

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
