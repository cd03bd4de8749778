import type { Json, JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';

/** A request that is answered with 400 and `{message}`; the messages are those of gym-http-api. */
export class InvalidUsage extends Error {}

/** @throws InvalidUsage where there is no object in JSON */
export function readBody(body: unknown): JsonObject {
  if (!isObject(body)) throw new InvalidUsage('Request is not a valid json');
  return body;
}

/** @throws InvalidUsage where it is missing or empty */
export function required(body: JsonObject, name: string): Json {
  const value = optional(body, name);
  if (value !== undefined) return value;
  throw new InvalidUsage(`A required request parameter '${name}' was not provided`);
}

/** Null, an empty text and an empty list count as absent. */
export function optional(body: JsonObject, name: string): Json | undefined {
  const value = body[name];
  const empty = value === undefined || value === null || value === '';
  return empty || (Array.isArray(value) && value.length === 0) ? undefined : value;
}
