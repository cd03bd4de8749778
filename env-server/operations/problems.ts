import { InvalidConfig, InvalidOptions } from '../environments/core/environment.ts';
import { UnknownEnvironment } from '../environments/registry.ts';
import { invalidRequest, PROBLEMS, Problem, type ProblemCode } from '../problems.ts';
import type { Operation } from './operation.ts';

/** Problems of any request. */
const ANY: readonly ProblemCode[] = [
  'bad_request',
  'unauthorized',
  'forbidden',
  'host_not_allowed',
  'invalid_request',
  'internal',
  'draining',
  'worker_unavailable',
];
/** Problems of a request that may have a body. */
const WITH_BODY: readonly ProblemCode[] = ['bad_json', 'body_too_large', 'unsupported_media_type'];
/** Problems of a change that the server stores on disk. */
const OF_CHANGES: readonly ProblemCode[] = ['storage_failed', 'storage_full'];
/** Problems of naming a session. */
const OF_SESSIONS: readonly ProblemCode[] = [
  'unknown_session',
  'session_expired',
  'session_closed',
  'session_lost',
  'session_elsewhere',
  'storage_failed',
  'too_many_requests',
  'step_timeout',
];
/** Problems of running an environment. */
const OF_ENVIRONMENTS: readonly ProblemCode[] = [
  'environment_fault',
  'script_limit',
  'remote_failed',
  'remote_unavailable',
  'isolation_unavailable',
  'environment_busy',
  'too_many_requests',
  'step_timeout',
];

/** Every error code of an operation's route, in table order. */
export function documentedProblems(operation: Operation): ProblemCode[] {
  return inOrder([
    ...ANY,
    ...(operation.method === 'GET' ? [] : [...WITH_BODY, ...OF_CHANGES]),
    ...(operation.keyed ? (['key_reused', 'request_key_expired', 'too_many_requests'] as const) : []),
    ...(operation.target === 'session' ? OF_SESSIONS : []),
    ...(operation.plays ? OF_ENVIRONMENTS : []),
    ...(operation.problems ?? []),
  ]);
}

/** Error codes of a whole batch; its items have those of their operations. */
export const BATCH_PROBLEMS: readonly ProblemCode[] = inOrder([...ANY, ...WITH_BODY]);

function inOrder(codes: readonly ProblemCode[]): ProblemCode[] {
  const wanted = new Set(codes);
  return (Object.keys(PROBLEMS) as ProblemCode[]).filter(code => wanted.has(code));
}

/** A thrown value as a problem with a code. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  if (error instanceof UnknownEnvironment) return new Problem('unknown_environment', error.message);
  if (error instanceof InvalidConfig) return invalidRequest(`/config${error.pointer}`, error.message);
  if (error instanceof InvalidOptions) return invalidRequest(`/options${error.pointer}`, error.message);
  return new Problem('internal', 'the server failed; its log has the cause', { cause: error });
}
