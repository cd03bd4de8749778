import { randomInt } from 'node:crypto';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { compiled } from '../../../shared/schema/check.ts';
import type { Space } from '../../environments/core/space.ts';
import { gymnasiumSpace, jsonSchema } from '../../environments/core/space-documents.ts';
import { actionFromZeroBased, withoutStart } from './zero-based.ts';

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
