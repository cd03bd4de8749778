import type { TSchema } from 'typebox';
import { loadConfig } from '../../shared/config.ts';
import type { Json } from '../../shared/json.ts';
import { closed, Type } from '../../shared/schema/type.ts';
import { DECLARATIONS, flagOf, type SettingDeclaration } from './settings.ts';

// Apart from the settings, because a server without a config file loads neither YAML nor schemas for it.

/** Contents of a config file: the flags without their dashes. */
const ConfigFile = closed(
  Object.fromEntries(
    Object.entries(DECLARATIONS).map(([name, declaration]) => [
      flagOf(name),
      Type.Optional(
        name === 'tokens' ? Type.Union([Type.String(), Type.Array(Type.Unknown())]) : schemaOf(declaration),
      ),
    ]),
  ),
);

/**
 * Reads a YAML file of settings.
 * @returns setting → value, for those the file has
 * @throws ConfigError naming each wrong key, its line and what would be right
 */
export function readConfigFile(file: string): ReadonlyMap<string, Json> {
  const values = loadConfig(file, { schema: ConfigFile }) as { readonly [flag: string]: Json };
  const found = new Map<string, Json>();
  for (const name of Object.keys(DECLARATIONS)) {
    const value = values[flagOf(name)];
    if (value !== undefined) found.set(name, Array.isArray(value) ? JSON.stringify(value) : value);
  }
  return found;
}

function schemaOf({
  default: value,
  minimum,
  maximum,
  integer,
  choices,
}: SettingDeclaration<unknown>): TSchema {
  if (choices) return Type.Enum([...choices], { type: 'string' });
  if (typeof value !== 'number') return Type.String();
  const bounds = { ...(minimum !== undefined && { minimum }), ...(maximum !== undefined && { maximum }) };
  return integer ? Type.Integer(bounds) : Type.Number(bounds);
}
