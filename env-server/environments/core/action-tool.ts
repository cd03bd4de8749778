import type { TProperties } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import { Type } from '../../../shared/schema/type.ts';
import type { ActionTool } from './environment.ts';

/**
 * Tool for a text action. All arguments are strings and required.
 * @param args description of each argument, by its name
 */
export function textTool<Name extends string>(
  name: string,
  description: string,
  args: { readonly [name in Name]: string },
  action: (given: { readonly [name in Name]: string }) => Json,
): ActionTool {
  const properties: TProperties = {};
  for (const key in args) properties[key] = Type.String({ minLength: 1, description: args[key] });
  return {
    name,
    description,
    parameters: Type.Object(properties, { additionalProperties: false }),
    action: given => action(given as { readonly [name in Name]: string }),
  };
}
