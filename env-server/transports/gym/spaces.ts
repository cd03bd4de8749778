import { randomInt } from 'node:crypto';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { compiled } from '../../../shared/schema/check.ts';
import { isObject } from '../../custom/answer.ts';
import type { Space } from '../../environments/core/space.ts';
import { gymnasiumSpace, jsonSchema } from '../../environments/core/space-documents.ts';

/** Value that gym-http-api writes for a missing bound. */
const UNBOUNDED = 1e100;

/** A space as gym-http-api describes it: its name and what bounds it; a `Box` with a list of bounds. */
export function spaceInfo(space: Space): JsonObject {
  const { type, ...bounds } = withoutStart(gymnasiumSpace(space));
  if (space.type !== 'Box') return { name: type, ...bounds };
  const size = space.shape.reduce((product, length) => product * length, 1);
  const each = (bound: number): Json[] => new Array<Json>(size).fill(bound);
  return {
    name: type,
    shape: [...space.shape],
    low: each(space.low ?? -UNBOUNDED),
    high: each(space.high ?? UNBOUNDED),
  };
}

/** True if a part of a path is a member of a space, as it is or read as JSON; ids count from 0. */
export function contains(space: Space, text: string): boolean {
  const { check } = compiled(jsonSchema(space));
  return check(text) || readings(text).some(value => check(actionFromZeroBased(space, value)));
}

function readings(text: string): Json[] {
  try {
    return [JSON.parse(text)];
  } catch {
    return [];
  }
}

/** True if a description of a space says nothing that the space is not. */
export function describes(space: Space, claims: JsonObject): boolean {
  const info = spaceInfo(space);
  return Object.entries(claims).every(
    ([key, value]) => key in info && JSON.stringify(info[key]) === JSON.stringify(value),
  );
}

/**
 * A random member of a space, ids counting from 0; or undefined for spaces of texts and other JSON, because most of
 * their members make no sense.
 */
export function sample(space: Space): Json | undefined {
  if (space.type === 'Discrete') return randomInt(space.n);
  if (space.type !== 'Dict') return undefined;
  const drawn: { [name: string]: Json } = {};
  for (const [name, inner] of Object.entries(space.spaces)) {
    const value = sample(inner);
    if (value === undefined) return undefined;
    drawn[name] = value;
  }
  return drawn;
}

// Discrete spaces of gym-http-api begin at 0: its clients know only `n`. Ids are translated on the way in and out; names
// and everything else stay as they are.

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
function withoutStart(gymnasium: JsonObject): JsonObject {
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
