import type { Static, TSchema } from 'typebox';
import { Compile } from 'typebox/compile';
import { faultsOf, faultText, withFewUnknown } from '../../../shared/faults.ts';
import type { JsonObject } from '../../../shared/json.ts';
import { badRequest } from './errors.ts';
import { NEUTRAL, WITHOUT_EFFECT } from './schemas.ts';

/** Deepest nesting of a request: what is deeper overflows recursive code. */
const DEEPEST = 64;

/**
 * Compiles the check of a request's body.
 * @returns a function that gives the body with its type, or throws ApiError 400 naming the first field that does not fit
 */
export function bodyParser<Schema extends TSchema>(schema: Schema): (body: unknown) => Static<Schema> {
  const validator = Compile(schema);
  return body => {
    if (typeof body !== 'object' || body === null || Array.isArray(body)) {
      throw badRequest('the body must be a JSON object');
    }
    refuseDepth(body);
    if (!validator.Check(body)) {
      const short = withFewUnknown(schema, body);
      const [fault] = faultsOf(schema, short, validator.Errors(short));
      if (fault === undefined) throw badRequest('the body does not fit the schema of this route');
      throw badRequest(faultText(fault, 'the body'), fault.pointer.split('/')[1]);
    }
    refuseEffects(body as JsonObject);
    return body as Static<Schema>;
  };
}

/** Fields of a request that change nothing here. */
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

function refuseDepth(body: object): void {
  const open: { readonly value: object; readonly depth: number }[] = [{ value: body, depth: 1 }];
  for (let entry = open.pop(); entry !== undefined; entry = open.pop()) {
    if (entry.depth > DEEPEST) throw badRequest(`the body is nested more than ${DEEPEST} levels deep`);
    for (const value of Object.values(entry.value)) {
      if (typeof value === 'object' && value !== null) open.push({ value, depth: entry.depth + 1 });
    }
  }
}
