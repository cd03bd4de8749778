import { randomInt } from 'node:crypto';
import { Compile } from 'typebox/compile';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { EnvironmentDocument } from '../../operations/schemas.ts';

type SpaceDocument = EnvironmentDocument['action_space'];

/** A space as gym-http-api describes it: its name and what bounds it. */
export function spaceInfo(space: SpaceDocument): JsonObject {
  const { type, ...bounds } = space.gymnasium as JsonObject;
  return { name: type, ...bounds };
}

/** Whether a part of a path is a member of a space, as it stands or read as JSON. */
export function contains(space: SpaceDocument, text: string): boolean {
  const validator = Compile(space.json_schema as JsonObject);
  return validator.Check(text) || readings(text).some(value => validator.Check(value));
}

function readings(text: string): Json[] {
  try {
    return [JSON.parse(text)];
  } catch {
    return [];
  }
}

/** Whether a description of a space says nothing that the space is not. */
export function describes(space: SpaceDocument, claims: JsonObject): boolean {
  const info = spaceInfo(space);
  return Object.entries(claims).every(
    ([key, value]) => key in info && JSON.stringify(info[key]) === JSON.stringify(value),
  );
}

/** A member drawn evenly, or undefined for spaces of texts and other JSON, most of whose members make no sense. */
export function sample(gymnasium: unknown): Json | undefined {
  const space = gymnasium as JsonObject;
  if (space.type === 'Discrete') {
    const start = space.start as number;
    return start + randomInt(space.n as number);
  }
  if (space.type !== 'Dict') return undefined;
  const drawn: { [name: string]: Json } = {};
  for (const [name, inner] of Object.entries(space.spaces as JsonObject)) {
    const value = sample(inner);
    if (value === undefined) return undefined;
    drawn[name] = value;
  }
  return drawn;
}
