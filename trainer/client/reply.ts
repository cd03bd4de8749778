import { isObject } from '../../shared/json.ts';
import type { Operation, OperationResult, Request, Schemas } from './operations.ts';
import { BadReply, ServerProblem } from './retry.ts';

/** Largest size of a reward in the contract: sums over episodes and of squares stay finite. */
const MAX_REWARD = 1e12;

/** Largest reply and frame: one batch may hold 32 Mi characters. */
export const MAX_REPLY_BYTES = 100 * 1024 * 1024;
export const TOO_LARGE = `more than ${MAX_REPLY_BYTES} bytes`;

/** Outcome of one request of a batch. */
export type BatchReply = OperationResult<Operation> | ServerProblem;

/**
 * The replies of a batch in the order of its requests.
 * @throws BadReply when the value is not a batch result, answers another number of requests or holds a result of another form
 */
export function readBatch(server: string, requests: readonly Request[], value: unknown): BatchReply[] {
  const results = (value as Schemas['BatchResult'] | null)?.results;
  if (!Array.isArray(results) || results.length !== requests.length) {
    throw new BadReply(
      server,
      'batch',
      `${Array.isArray(results) ? results.length : 'no'} results for ${requests.length} requests`,
    );
  }
  return results.map((entry: Partial<Schemas['BatchResult']['results'][0]> | null, i) => {
    const { op } = requests[i];
    if (entry?.ok === true && 'result' in entry) return checkedResult(server, op, entry.result);
    if (entry?.ok === false && 'error' in entry && isProblem(entry.error)) {
      return new ServerProblem(server, op, entry.error);
    }
    throw new BadReply(server, 'batch', excerpt(entry));
  });
}

/**
 * The result of an operation, with the fields that training depends on checked: a reward that is not a number would
 * spoil every later update.
 * @throws BadReply naming the field
 */
export function checkedResult<O extends Operation>(
  server: string,
  op: O,
  result: unknown,
): OperationResult<O> {
  if (op === 'create') {
    const { sessions, ...session } = fieldsOf(server, op, result);
    const all: readonly unknown[] = Array.isArray(sessions) ? sessions : [session];
    for (const one of all) {
      const { session_id } = fieldsOf(server, op, one);
      if (typeof session_id === 'string') continue;
      throw new BadReply(server, op, `session_id must be a string, got ${excerpt(session_id)}`);
    }
  }
  if (op === 'step') {
    const { reward, terminated, truncated, info } = fieldsOf(server, op, result);
    if (typeof reward !== 'number' || !(Math.abs(reward) <= MAX_REWARD)) {
      const got = typeof reward === 'number' ? String(reward) : excerpt(reward);
      throw new BadReply(
        server,
        op,
        `reward must be a number from -${MAX_REWARD} to ${MAX_REWARD}, got ${got}`,
      );
    }
    for (const [name, value] of Object.entries({ terminated, truncated })) {
      if (typeof value === 'boolean') continue;
      throw new BadReply(server, op, `${name} must be true or false, got ${excerpt(value)}`);
    }
    fieldsOf(server, op, info);
  }
  return result as OperationResult<O>;
}

function fieldsOf(server: string, op: string, value: unknown): { readonly [name: string]: unknown } {
  if (isObject(value)) return { ...value };
  throw new BadReply(server, op, `${excerpt(value)} in the place of an object`);
}

const EXCERPT_LENGTH = 200;

function excerpt(value: unknown): string {
  return (JSON.stringify(value) ?? 'nothing').slice(0, EXCERPT_LENGTH);
}

/** True if a value has the fields of every problem document. */
export function isProblem(value: unknown): value is Schemas['Problem'] {
  if (typeof value !== 'object' || value === null) return false;
  const { code, status, detail, errors = [] } = value as { readonly [name: string]: unknown };
  const texts = [code, detail].every(text => typeof text === 'string') && typeof status === 'number';
  return texts && Array.isArray(errors) && errors.every(error => typeof error === 'object' && error !== null);
}
