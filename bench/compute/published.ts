import { readFileSync } from 'node:fs';
import type { JsonObject } from '../../shared/json.ts';
import type { DecoderConfig } from '../../trainer/models/config.ts';
import { parseConfig } from '../../trainer/models/config-json.ts';

/** Shapes of published models, as their `config.json` has them; only the weights are missing. */
const CONFIGS: { readonly [name: string]: JsonObject | undefined } = JSON.parse(
  readFileSync(new URL('./published.json', import.meta.url), 'utf8'),
);

export const PUBLISHED_SHAPES = Object.keys(CONFIGS);

/** @throws RangeError listing the shapes when the name is not one of them */
export function publishedConfig(name: string): DecoderConfig {
  const json = CONFIGS[name];
  if (json === undefined)
    throw new RangeError(`no shape is named ${name}; choose ${PUBLISHED_SHAPES.join(', ')}`);
  return parseConfig(json);
}
