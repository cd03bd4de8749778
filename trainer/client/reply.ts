import { isObject, type JsonObject } from '../../shared/json.ts';
import type { Operation, OperationResult, Request, Schemas } from './operations.ts';
import { BadReply, ServerProblem } from './retry.ts';

/** Largest size of a reward in the contract: sums over episodes and of squares stay finite. */
const MAX_REWARD = 1e12;

/** Largest reply and frame: one batch may hold 32 Mi characters. */
export const MAX_REPLY_BYTES = 100 * 1024 * 1024;
export const TOO_LARGE = `more than ${MAX_REPLY_BYTES} bytes`;

/** Outcome of one request of a batch. */
export type BatchReply = OperationResult<Operation> | ServerProblem | BadReply;

/**
 * The replies of a batch in the order of its requests. A result of another form is a BadReply to its request alone.
 * @throws BadReply when the value is not a batch result, or answers another number of requests
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
    try {
      if (entry?.ok === true && 'result' in entry) return checkedResult(server, requests[i], entry.result);
    } catch (error) {
      if (error instanceof BadReply) return error;
      throw error;
    }
    if (entry?.ok === false && 'error' in entry && isProblem(entry.error)) {
      return new ServerProblem(server, op, entry.error);
    }
    return new BadReply(server, 'batch', excerpt(entry));
  });
}

const isPart = (value: unknown) => typeof value === 'object' && value !== null;

const KINDS = {
  'a string': (value: unknown) => typeof value === 'string',
  'true or false': (value: unknown) => typeof value === 'boolean',
  'a list': Array.isArray,
  'a list of strings': (value: unknown) =>
    Array.isArray(value) && value.every(item => typeof item === 'string'),
  'a list of objects': (value: unknown) => Array.isArray(value) && value.every(isObject),
  'an object': isObject,
  'a text, an object or a list of parts': (value: unknown): boolean =>
    typeof value === 'string' || isObject(value) || (Array.isArray(value) && value.every(isPart)),
} as const;
type Fields = { readonly [path: string]: keyof typeof KINDS };

const OBSERVATION = 'a text, an object or a list of parts';
const SESSION: Fields = { session_id: 'a string', episode_id: 'a string', observation: OBSERVATION };
/** Fields on which the trainer depends; those with `?` may be absent or null. */
const FIELDS: { readonly [O in Operation]?: Fields } = {
  create: { 'sessions?': 'a list' },
  clone: { sessions: 'a list' },
  restore: SESSION,
  snapshot: { snapshot_id: 'a string' },
  step: {
    session_id: 'a string',
    observation: OBSERVATION,
    terminated: 'true or false',
    truncated: 'true or false',
    'info.success?': 'true or false',
    'info.action_is_valid?': 'true or false',
    'info.action_is_effective?': 'true or false',
  },
  reference: { actions: 'a list' },
  valid_actions: { 'valid_actions?': 'a list' },
  trajectory: { records: 'a list of objects' },
  list_environments: { environments: 'a list of objects' },
  describe_environment: {
    env_id: 'a string',
    instruction: 'a string',
    'action_space.gymnasium.type': 'a string',
    capabilities: 'an object',
    references: 'a list of objects',
    'actions?': 'a list of strings',
    'vocabulary?': 'a list of strings',
    'example_actions?': 'a list',
    'legend?': 'a list of objects',
    'action_format?': 'a string',
  },
};

/**
 * The result of an operation, with the fields that training depends on checked: a reward that is not a number would
 * spoil every later update.
 * @throws BadReply naming the field
 */
export function checkedResult<O extends Operation>(
  server: string,
  { op, input }: Request<O>,
  result: unknown,
): OperationResult<O> {
  const refuse = (what: string): never => {
    throw new BadReply(server, op, what);
  };
  if (op === 'close') return result as OperationResult<O>;
  const fields = fieldsOf(result, refuse);
  const { count = 1, session_id: asked } = input as { readonly count?: number; readonly session_id?: string };
  checkFields(fields, FIELDS[op] ?? {}, refuse);
  if (op === 'create' || op === 'clone') {
    const sessions = (fields.sessions as readonly unknown[] | null | undefined) ?? [fields];
    if (sessions.length !== count) refuse(`${sessions.length} sessions for a count of ${count}`);
    for (const session of sessions) checkFields(fieldsOf(session, refuse), SESSION, refuse);
  }
  if (op === 'step') {
    const { reward, session_id } = fields;
    if (typeof reward !== 'number' || !(Math.abs(reward) <= MAX_REWARD)) {
      const got = typeof reward === 'number' ? String(reward) : excerpt(reward);
      refuse(`reward must be a number from -${MAX_REWARD} to ${MAX_REWARD}, got ${got}`);
    }
    if (session_id !== asked) refuse(`session_id must be ${excerpt(asked)}, got ${excerpt(session_id)}`);
  }
  return result as OperationResult<O>;
}

type Refuse = (what: string) => never;

function checkFields(result: JsonObject, fields: Fields, refuse: Refuse): void {
  for (const [path, kind] of Object.entries(fields)) {
    const keys = path.replace('?', '').split('.');
    const value = keys.reduce<unknown>((at, key) => fieldsOf(at, refuse)[key], result);
    if (KINDS[kind](value) || (path.endsWith('?') && (value ?? null) === null)) continue;
    refuse(`${keys.join('.')} must be ${kind}, got ${excerpt(value)}`);
  }
}

function fieldsOf(value: unknown, refuse: Refuse): JsonObject {
  return isObject(value) ? value : refuse(`${excerpt(value)} in the place of an object`);
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
