import { isDeepStrictEqual } from 'node:util';
import { RunSettings } from './settings.ts';

/** The part of a JSON schema that names defaults. */
interface Schema {
  readonly default?: unknown;
  readonly properties?: { readonly [name: string]: Schema };
}

/** Sections that every run describes itself. */
const DESCRIBED = new Set(['servers', 'tags']);

/** Settings that differ from the defaults of the schema, as `section.key`; those without a default are among them. */
export function changedSettings(settings: RunSettings): string[] {
  const others = Object.entries(settings).filter(([name]) => !DESCRIBED.has(name));
  return changesIn(RunSettings as Schema, Object.fromEntries(others));
}

function changesIn({ default: usual, properties }: Schema, value: unknown, key = ''): string[] {
  const nested = properties && typeof value === 'object' && value !== null && !Array.isArray(value);
  if (!nested) return isDeepStrictEqual(value, usual) ? [] : [key];
  return Object.entries(value).flatMap(([name, inner]) =>
    changesIn(properties[name] ?? {}, inner, key === '' ? name : `${key}.${name}`),
  );
}
