import type { TProperties } from 'typebox';
import type { Json } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { ActionTool, ReferencePolicy } from './environment.ts';
import type { Space } from './spaces.ts';

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
    parameters: closed(properties),
    action: given => action(given as { readonly [name in Name]: string }),
  };
}

/** Discrete action space with named actions; ids run from `start`. */
export interface NamedActions {
  readonly names: readonly string[];
  readonly space: Extract<Space, { type: 'Discrete' }>;
  /** Index in `names` (from 0) of an action given as an id or as a name in any case; −1 for an unknown action. */
  indexOf(action: Json): number;
}

/**
 * @example
 * const actions = namedActions(['Left', 'Down', 'Right', 'Up'], 1);
 * actions.indexOf(1); // 0
 * actions.indexOf(' up '); // 3
 * actions.indexOf('Jump'); // -1
 */
export function namedActions(names: readonly string[], start: number): NamedActions {
  const exact = new Map(names.map((name, index) => [name, index]));
  const folded = new Map(names.map((name, index) => [name.toLowerCase(), index]));
  return {
    names,
    space: { type: 'Discrete', n: names.length, start, names },
    indexOf(action) {
      if (typeof action === 'number') {
        const index = action - start;
        return Number.isInteger(index) && index >= 0 && index < names.length ? index : -1;
      }
      if (typeof action !== 'string') return -1;
      return exact.get(action) ?? folded.get(action.trim().toLowerCase()) ?? -1;
    },
  };
}

/** Uniformly random actions by name. */
export function randomPolicy<State>({ names }: NamedActions): ReferencePolicy<State> {
  return drawnPolicy(names, 'Uniformly random actions');
}

/** Actions drawn uniformly from a list. */
export function drawnPolicy<State>(
  actions: readonly Json[],
  title = 'Example actions, drawn uniformly',
): ReferencePolicy<State> {
  return {
    title,
    plan(_state: State, count: number, rng: Random) {
      return Array.from({ length: count }, () => rng.choice(actions));
    },
  };
}
