import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { faultsOf, faultText, withFewUnknown } from '../../../shared/faults.ts';
import type { JsonObject } from '../../../shared/json.ts';
import { badRequest } from './errors.ts';
import { NEUTRAL, WITHOUT_EFFECT } from './schemas.ts';

/** Deepest nesting of a request: deeper ones overflow recursive code. */
const DEEPEST = 64;
/** Most entries of all objects of a request together: each takes microseconds, which block other requests. */
const MAX_ENTRIES = 50_000;
/**
 * Entries of a list or object that are searched for faults. Listing the faults of a million takes seconds, which block
 * other requests. The number is larger than any limit of the schemas, so lists that are too long are always found.
 */
const MAX_NAMED = 5000;

/**
 * Compiles the check of a request's body.
 * @param refuse rejects more than the schema: by default, fields of OpenAI's API without an effect
 * @returns a function that returns the typed body, or throws ApiError 400 naming the first field that does not fit
 */
export function bodyParser<Schema extends TSchema>(
  schema: Schema,
  refuse: (body: JsonObject) => void = refuseEffects,
): (body: unknown) => Static<Schema> {
  const validator = Compile(schema);
  return body => {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw badRequest('the body must be a JSON object');
    }
    refuseExcess(body);
    if (!validator.Check(body)) {
      const short = withFewUnknown(schema, shortened(body));
      const [fault] = faultsOf(schema, body, validator.Errors(short));
      if (fault === undefined) {
        throw badRequest(`a list or object of the body has an invalid entry after the first ${MAX_NAMED}`);
      }
      throw badRequest(faultText(fault, 'the body'), fault.pointer.split('/')[1]);
    }
    refuse(body as JsonObject);
    return body as Static<Schema>;
  };
}

/** Fields of a request that have no effect here. */
export function fieldsWithoutEffect(body: object): string[] {
  return WITHOUT_EFFECT.filter(name => name in body && (body as JsonObject)[name] !== null);
}

function refuseEffects(body: JsonObject): void {
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    const value = body[name];
    if (value === undefined || value === null || value === neutral) continue;
    throw badRequest(`${name} is not supported: leave it out or give ${JSON.stringify(neutral)}`, name);
  }
}

/** The value with the first entries of its lists and objects. */
function shortened(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.slice(0, MAX_NAMED).map(shortened);
  return Object.fromEntries(
    Object.entries(value)
      .slice(0, MAX_NAMED)
      .map(([key, part]) => [key, shortened(part)]),
  );
}

/** Rejects deeper nesting, and objects with too many entries. */
function refuseExcess(body: object): void {
  const open: { readonly value: object; readonly depth: number }[] = [{ value: body, depth: 1 }];
  let entries = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (next.depth > DEEPEST) throw badRequest(`the body is nested more than ${DEEPEST} levels deep`);
    const values = Object.values(next.value);
    if (!Array.isArray(next.value)) entries += values.length;
    if (entries > MAX_ENTRIES)
      throw badRequest(`the objects of the body have more than ${MAX_ENTRIES} entries together`);
    for (const value of values) {
      if (typeof value === 'object' && value !== null) open.push({ value, depth: next.depth + 1 });
    }
  }
}
