import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { problemOf } from '../../operations/problems.ts';
import type { ProblemCode } from '../../problems.ts';
import { TooManySessions } from '../../sessions/limits/admission.ts';

const UNPROCESSABLE = 422;
/** Errors after which a client begins a new session. */
const NO_SESSION = new Set<ProblemCode>(['unknown_session', 'session_closed', 'session_expired']);

/** Error codes of JSON-RPC 2.0, and one of the Model Context Protocol. */
const RPC_CODES = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  serverError: -32000,
  unsupportedVersion: -32022,
} as const;

/** An error reply. */
export class RpcError extends Error {
  readonly code: number;
  readonly data: JsonObject | undefined;

  constructor(code: keyof typeof RPC_CODES, message: string, data?: JsonObject) {
    super(message);
    this.code = RPC_CODES[code];
    this.data = data;
  }
}

export interface RpcRequest {
  readonly id: Json;
  readonly method: string;
  readonly params: JsonObject;
}

/**
 * True for a message without a reply: a notification (a request without `id`), or a reply to a request of the server.
 * Anything that is not JSON-RPC gets an error as its reply.
 */
export function isUnanswered(given: unknown): boolean {
  if (!isObject(given) || given.jsonrpc !== '2.0') return false;
  if (given.method === undefined) return isReply(given);
  return typeof given.method === 'string' && given.id === undefined;
}

/** True if a message is a reply to a request. */
export function isReply(given: unknown): boolean {
  return isObject(given) && given.method === undefined && ('result' in given || 'error' in given);
}

/** @throws RpcError */
export function readRpc(given: unknown): RpcRequest {
  if (given === undefined) throw new RpcError('parseError', 'Parse error: there is no body');
  if (!isObject(given)) throw new RpcError('invalidRequest', 'Invalid request: it must be an object');
  const { jsonrpc, id, method, params = {} } = given;
  if (jsonrpc !== '2.0') throw new RpcError('invalidRequest', 'Invalid request: jsonrpc must be "2.0"');
  if (id !== undefined && !isId(id)) {
    throw new RpcError('invalidRequest', 'Invalid request: id must be a string, a number or null');
  }
  if (typeof method !== 'string') {
    throw new RpcError('invalidRequest', 'Invalid request: method must be a string');
  }
  if (!isObject(params)) throw new RpcError('invalidParams', 'Params must be an object');
  return { id: id ?? null, method, params };
}

function isId(id: Json): boolean {
  return id === null || typeof id === 'string' || typeof id === 'number';
}

export const rpcSuccess = (id: Json, result: JsonObject): JsonObject => ({ jsonrpc: '2.0', id, result });

export const rpcFailure = (id: Json, { code, message, data }: RpcError): JsonObject => ({
  jsonrpc: '2.0',
  id,
  error: { code, message, ...(data && { data }) },
});

/** The id of a possibly malformed request; null where none can be read. */
export function rpcId(given: unknown): Json {
  return isObject(given) && given.id !== undefined && isId(given.id) ? given.id : null;
}

/** Converts any error to a JSON-RPC error. */
export function rpcErrorOf(error: unknown): RpcError {
  if (error instanceof RpcError) return error;
  const problem = problemOf(error);
  if (problem.status === UNPROCESSABLE || NO_SESSION.has(problem.code))
    return new RpcError('invalidParams', problem.message);
  if (problem instanceof TooManySessions) {
    return new RpcError('serverError', problem.message, capacityOf(problem));
  }
  return new RpcError('internalError', problem.message);
}

/** Describes the limit that kept a client from opening one more session. */
export function capacityOf({ open, most }: TooManySessions): JsonObject {
  return { active_sessions: open, max_sessions: most };
}

/** True if an error means that the session no longer exists. */
export function isGone(error: unknown): boolean {
  return NO_SESSION.has(problemOf(error).code);
}
