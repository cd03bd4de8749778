/** A JSON Schema of the document, as far as Python types need it. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: { readonly [name: string]: Schema };
  readonly patternProperties?: { readonly [pattern: string]: Schema };
  readonly required?: readonly string[];
  readonly description?: string;
}

const REFERENCE = '#/components/schemas/';
const SCALARS: { readonly [type: string]: string } = {
  string: 'str',
  integer: 'int',
  number: 'float',
  boolean: 'bool',
  null: 'None',
};

export const refName = (reference: string): string => reference.replace(REFERENCE, '');

/** The parts of a union, or undefined for other schemas. */
export const unionOf = (schema: Schema): readonly Schema[] | undefined => schema.anyOf ?? schema.oneOf;

/** Called for every object inside another one, so that it gets a class; returns the name of the class. */
export type NameObject = (schema: Schema, path: string) => string;

/**
 * The Python type of a schema.
 * @param path names the place, for objects inside objects
 */
export function pythonType(schema: Schema, path: string, nameObject: NameObject): string {
  if (schema.$ref !== undefined) return refName(schema.$ref);
  if (schema.const !== undefined) return `Literal[${literal(schema.const)}]`;
  if (schema.enum) return `Literal[${schema.enum.map(literal).join(', ')}]`;
  const parts = unionOf(schema);
  if (parts) return union(parts.map((part, i) => pythonType(part, `${path}${i + 1}`, nameObject)));
  const { type } = schema;
  if (type === undefined) return 'Any';
  if (typeof type !== 'string') return union(type.map(one => SCALARS[one]));
  if (type === 'array') return `list[${schema.items ? pythonType(schema.items, path, nameObject) : 'Any'}]`;
  if (type !== 'object') return SCALARS[type];
  if (schema.properties) return nameObject(schema, path);
  const [values] = Object.values(schema.patternProperties ?? {});
  return `dict[str, ${values ? pythonType(values, path, nameObject) : 'Any'}]`;
}

const union = (types: readonly string[]): string => [...new Set(types)].join(' | ');

/** `max_items` → `MaxItems`. */
export const pascal = (name: string): string =>
  name.replace(/(?:^|_)([a-z])/g, (_match, letter: string) => letter.toUpperCase());

function literal(value: unknown): string {
  if (value === true) return 'True';
  if (value === false) return 'False';
  return JSON.stringify(value);
}

/** A docstring of one paragraph, wrapped. */
export function docstring(text: string, indent: string): string {
  const safe = text.replaceAll('\\', '\\\\').replaceAll('"""', "'''");
  return wrap(`"""${safe}"""`, indent);
}

const LINE_LENGTH = 110;

function wrap(text: string, indent: string): string {
  const lines: string[] = [];
  let line = '';
  for (const word of text.split(/\s+/)) {
    if (line !== '' && indent.length + line.length + 1 + word.length > LINE_LENGTH) {
      lines.push(line);
      line = word;
    } else line = line === '' ? word : `${line} ${word}`;
  }
  lines.push(line);
  return lines.map(one => `${indent}${one}\n`).join('');
}
