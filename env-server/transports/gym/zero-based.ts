import type { Json, JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import type { Space } from '../../environments/core/space.ts';

/**
 * Discrete spaces of gym-http-api begin at 0: its clients know only `n`. Ids are translated on the way in and out; names
 * and everything else stay as they are.
 */

/** An action as the environment counts, from one that counts from 0. */
export function actionFromZeroBased(space: Space, action: Json): Json {
  if (space.type === 'Discrete')
    return Number.isInteger(action) ? Number(action) + (space.start ?? 0) : action;
  if (space.type !== 'Dict' || !isObject(action)) return action;
  return Object.fromEntries(
    Object.entries(action).map(([name, value]) => [
      name,
      Object.hasOwn(space.spaces, name) ? actionFromZeroBased(space.spaces[name], value) : value,
    ]),
  );
}

/** The Gymnasium form of a space without the `start` of its discrete ones. */
export function withoutStart(gymnasium: JsonObject): JsonObject {
  const { start: _start, ...rest } = gymnasium;
  const { spaces, space } = rest;
  if (Array.isArray(spaces))
    return { ...rest, spaces: spaces.map(inner => withoutStart(inner as JsonObject)) };
  if (isObject(spaces)) {
    const entries = Object.entries(spaces).map(([name, inner]) => [name, withoutStart(inner as JsonObject)]);
    return { ...rest, spaces: Object.fromEntries(entries) };
  }
  return isObject(space) ? { ...rest, space: withoutStart(space) } : rest;
}
