/** A part of the OpenAPI document. */
export type Document = { [key: string]: unknown };

/** Moves what is titled in a schema to the components; gives the schema with references to them. */
export type Emit = (schema: unknown) => unknown;

/** Moves titled schemas into the components and leaves references in their place. */
export function lift(schema: unknown, components: Map<string, Document>): unknown {
  if (Array.isArray(schema)) return schema.map(item => lift(item, components));
  if (typeof schema !== 'object' || schema === null) return schema;
  const copy: Document = {};
  for (const [key, value] of Object.entries(schema)) {
    if (key !== 'default' && key !== 'title') copy[key] = lift(value, components);
    else copy[key] = value;
  }
  if (typeof copy.title !== 'string') return copy;
  const { title, ...rest } = copy;
  components.set(title as string, rest);
  return reference(title as string);
}

/** Reference to a component. */
export const reference = (name: string): Document => ({ $ref: `#/components/schemas/${name}` });

/** `create_session` as `CreateSession`. */
export function pascal(name: string): string {
  return name
    .split('_')
    .map(word => word[0].toUpperCase() + word.slice(1))
    .join('');
}
