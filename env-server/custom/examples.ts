import { readFileSync } from 'node:fs';
import type { JsonObject } from '../../shared/json.ts';

interface Example {
  readonly summary: string;
  readonly value: JsonObject;
}

/** One complete registration of every kind, for the reference and the docs; the remote ones need their service. */
export const EXAMPLES: { readonly [kind: string]: Example } = JSON.parse(
  readFileSync(new URL('./examples.json', import.meta.url), 'utf8'),
);
