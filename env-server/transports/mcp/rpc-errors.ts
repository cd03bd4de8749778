import type { JsonObject } from '../../../shared/json.ts';
import { problemOf } from '../../operations/problems.ts';
import type { Problem, ProblemCode } from '../../problems.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';
import { RpcError } from './json-rpc.ts';

const UNPROCESSABLE = 422;
/** Errors after which a client begins a new session. */
const NO_SESSION = new Set<ProblemCode>(['unknown_session', 'session_closed', 'session_expired']);

/** Any error as one of JSON-RPC. */
export function rpcErrorOf(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  const problem = problemOf(error);
  if (isAboutParams(problem)) return new RpcError('invalidParams', problem.message);
  if (problem instanceof TooManySessions) {
    return new RpcError('serverError', problem.message, capacityOf(problem));
  }
  return new RpcError('internalError', problem.message);
}

/** Describes the limit that kept a client from one more session. */
export function capacityOf({ open, most }: TooManySessions): JsonObject {
  return { active_sessions: open, max_sessions: most };
}

/** True if an error says that the session does not exist any more. */
export function isGone(error: unknown): boolean {
  return NO_SESSION.has(problemOf(error).code);
}

function isAboutParams(problem: Problem): boolean {
  return problem.status === UNPROCESSABLE || NO_SESSION.has(problem.code);
}
