import type { RequestFault } from '../../custom/remote/openenv-protocol.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';

const INVALID_STATUS = 422;

/** A malformed message or body. */
export class InvalidMessage extends Error {
  readonly faults: readonly RequestFault[];
  /** Problem of the operation, if it found the fault. */
  override readonly cause: Problem | undefined;

  constructor(faults: readonly RequestFault[], cause?: Problem) {
    super(faults.map(({ loc, msg }) => (loc.length > 0 ? `${loc.join('.')}: ${msg}` : msg)).join('; '));
    this.faults = faults;
    this.cause = cause;
  }
}

type FaultLocation = RequestFault['loc'];

export const missing = (loc: FaultLocation): RequestFault => ({
  type: 'missing',
  loc,
  msg: 'Field required',
});

export const notObject = (loc: FaultLocation): RequestFault => ({
  type: 'dict_type',
  loc,
  msg: 'Input should be a valid dictionary',
});

/** Most unknown fields that a reply names. */
const MAX_EXTRAS = 8;

/** @returns the first few fields of an object that are not allowed */
export function extras(given: object, known: readonly string[]): RequestFault[] {
  const msg = `Extra inputs are not permitted; known are ${known.join(', ')}`;
  return Object.keys(given)
    .filter(key => !known.includes(key))
    .slice(0, MAX_EXTRAS)
    .map(key => ({ type: 'extra_forbidden', loc: [key], msg }));
}

/**
 * Runs work on a part of a request.
 * @param location path of that part in the request
 * @param wrapped true if an operation's `action` is a field of that part, false if it is the part itself
 * @throws InvalidMessage for any fault of the part, including faults that an operation found; other errors unchanged
 */
export function within<T>(
  location: FaultLocation,
  wrapped: boolean,
  work: () => MaybePromise<T>,
): MaybePromise<T> {
  const retell = (error: unknown): never => {
    throw located(error, location, wrapped);
  };
  try {
    const result = work();
    return result instanceof Promise ? result.catch(retell) : result;
  } catch (error) {
    return retell(error);
  }
}

function located(error: unknown, location: FaultLocation, wrapped: boolean): unknown {
  if (error instanceof InvalidMessage) {
    const faults = error.faults.map(fault => ({ ...fault, loc: [...location, ...fault.loc] }));
    return new InvalidMessage(faults, error.cause);
  }
  const problem = problemOf(error);
  if (problem.status !== INVALID_STATUS) return error;
  const violations = problem.violations ?? [{ pointer: '', detail: problem.message }];
  const faults = violations.map(({ pointer, detail }) => ({
    type: 'value_error',
    loc: [...location, ...partsOf(pointer, wrapped)],
    msg: detail,
  }));
  return new InvalidMessage(faults, problem);
}

/** An operation's JSON pointer as a location in the fields of a reset or step. */
function partsOf(pointer: string, wrapped: boolean): (string | number)[] {
  const parts = pointer
    .split('/')
    .slice(1)
    .map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'))
    .map(part => (/^\d+$/.test(part) ? Number(part) : part));
  const inside = parts[0] === 'options' || (parts[0] === 'action' && !wrapped);
  return inside ? parts.slice(1) : parts;
}

/** A thrown value as an error that the problem handler counts and logs under its code. */
export function countable(error: unknown): unknown {
  if (!(error instanceof InvalidMessage)) return error;
  return error.cause ?? new Problem('invalid_request', error.message);
}
