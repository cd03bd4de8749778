import type { TProperties } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import { type ActionTool, type ReferencePolicy, stepInfo, type Transition } from './environment.ts';
import type { Space } from './spaces.ts';

const ARGUMENT = /\{(\w+)\}/g;

/**
 * Tool for a text action. All arguments are strings and required.
 * @param form the action, with the names of arguments in braces, e.g. `search[{query}]`
 * @param about description of each argument, by its name; it may describe others
 */
export function textTool(
  name: string,
  description: string,
  form: string,
  about: { readonly [argument: string]: string } = {},
): ActionTool {
  const properties: TProperties = {};
  for (const [, key] of form.matchAll(ARGUMENT)) {
    properties[key] = Type.String({ minLength: 1, description: about[key] });
  }
  return {
    name,
    description,
    parameters: closed(properties),
    action: given => form.replaceAll(ARGUMENT, (_, key: string) => given[key]),
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

/**
 * A step that changes nothing: an action that is not valid, or any action after the end.
 * @param end how the episode has ended, where it has
 */
export function unchanged<State>(
  state: State,
  valid: boolean,
  end: { readonly success: boolean; readonly ended_by: string } | null | undefined,
  more: JsonObject = {},
): Transition<State> {
  const info = stepInfo(end?.success ?? false, valid, false, end?.ended_by, more);
  return { state, reward: 0, terminated: Boolean(end), info };
}
