import { useState } from 'preact/hooks';
import { html } from '../components/html.ts';

/** The read parts of a schema of an OpenAPI 3.1 document. */
export interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly properties?: { readonly [name: string]: Schema };
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly oneOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly default?: unknown;
  readonly examples?: readonly unknown[];
  readonly minItems?: number;
}

export interface Parameter {
  readonly name: string;
  readonly in: 'path' | 'query' | 'header';
  readonly required: boolean;
  readonly description?: string;
  readonly schema: Schema;
}

interface Content {
  readonly [mediaType: string]: {
    readonly schema: Schema;
    readonly examples?: { readonly [name: string]: { readonly value: unknown } };
  };
}

/** A method of a path. */
export interface Operation {
  readonly operationId: string;
  readonly tags: readonly string[];
  readonly summary: string;
  readonly description?: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly required: boolean; readonly content: Content };
  readonly responses: {
    readonly [status: string]: { readonly description: string; readonly content?: Content };
  };
}

export interface OpenApi {
  readonly info: { readonly title: string; readonly version: string; readonly description: string };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: { readonly [path: string]: { readonly [method: string]: Operation } };
  readonly components: { readonly schemas: { readonly [name: string]: Schema } };
}

const nameOf = (ref: string): string => ref.slice(ref.lastIndexOf('/') + 1);

/** Resolves a reference to a schema. */
function resolved(schema: Schema, document: OpenApi): Schema {
  return schema.$ref === undefined ? schema : document.components.schemas[nameOf(schema.$ref)];
}

const alternatives = ({ anyOf, oneOf, allOf }: Schema) => anyOf ?? oneOf ?? allOf ?? [];

/** A type in a few words: `"string[] | null"`. */
function typeName(schema: Schema): string {
  if (schema.$ref !== undefined) return nameOf(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map(value => JSON.stringify(value)).join(' | ');
  const several = alternatives(schema);
  if (several.length > 0) return [...new Set(several.map(typeName))].join(schema.allOf ? ' & ' : ' | ');
  if (schema.items)
    return `${/ [|&] /.test(typeName(schema.items)) ? `(${typeName(schema.items)})` : typeName(schema.items)}[]`;
  return [schema.type ?? 'any'].flat().join(' | ');
}

/** An example value of a schema, with its required parts only. */
export function sampleOf(schema: Schema, document: OpenApi): unknown {
  const { const: fixed, enum: values, default: usual, examples, ...rest } = resolved(schema, document);
  const [known] = [...(examples ?? []), usual, fixed, ...(values ?? [])].filter(value => value !== undefined);
  if (known !== undefined) return known;
  const [first] = alternatives(rest);
  if (first) return sampleOf(first, document);
  switch ([rest.type ?? 'string'].flat()[0]) {
    case 'object':
      return Object.fromEntries(
        (rest.required ?? []).map(name => [name, sampleOf(rest.properties?.[name] ?? {}, document)]),
      );
    case 'array':
      return rest.minItems && rest.items ? [sampleOf(rest.items, document)] : [];
    case 'integer':
    case 'number':
      return 0;
    case 'boolean':
      return false;
    case 'null':
      return null;
    default:
      return '';
  }
}

/** Text with `code`, and an empty line between paragraphs. */
export function Text({ text }: { readonly text: string }) {
  return text
    .split('\n\n')
    .map(
      paragraph =>
        html`<p class="prose">${paragraph.split('`').map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : part))}</p>`,
    );
}

interface SchemaViewProps {
  readonly schema: Schema;
  readonly document: OpenApi;
}

/** True if a schema has more to show than its type. */
function hasParts(schema: Schema, document: OpenApi): boolean {
  const { properties, items, ...rest } = resolved(schema, document);
  return (
    Object.keys(properties ?? {}).length > 0 ||
    [...(items ? [items] : []), ...alternatives(rest)].some(
      part => part.$ref !== undefined || hasParts(part, document),
    )
  );
}

/** The members of an object, or the alternatives of a schema; each opens on demand, because schemas refer to one another. */
export function SchemaView({ schema, document }: SchemaViewProps) {
  const whole = resolved(schema, document);
  const parts = [...alternatives(whole), ...(whole.items ? [whole.items] : [])];
  return html`${
    whole.properties &&
    html`<table class="members"><tbody>${Object.entries(whole.properties).map(
      ([name, member]) => html`<tr key=${name}>
      <th scope="row"><code>${breakable(name)}</code>${whole.required?.includes(name) && html` <span class="fine">required</span>`}</th>
      <td><${Member} schema=${member} document=${document} /></td></tr>`,
    )}</tbody></table>`
  }
    ${parts.map((part, index) => html`<${Member} key=${index} schema=${part} document=${document} />`)}`;
}

/** A name that may break behind each `_`, so that tables in tables fit on a phone. */
const breakable = (name: string) => name.split(/(?<=_)/).map(part => html`${part}<wbr />`);

function Member({ schema, document }: SchemaViewProps) {
  const [isOpen, open] = useState(false);
  const { description, default: usual } = { ...resolved(schema, document), ...schema };
  const type = html`<code>${typeName(schema)}</code>`;
  return html`${
    hasParts(schema, document)
      ? html`<details onToggle=${(event: Event) => open((event.currentTarget as HTMLDetailsElement).open)}>
          <summary>${type}</summary>${isOpen && html`<${SchemaView} schema=${schema} document=${document} />`}</details>`
      : type
  }${usual !== undefined && html` <span class="fine">default <code>${JSON.stringify(usual)}</code></span>`}
    ${description && html`<${Text} text=${description} />`}`;
}
