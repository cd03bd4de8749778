import type { Json, JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';

/** Error codes of JSON-RPC 2.0. */
export const RPC_CODES = {
  parseError: -32700,
  invalidRequest: -32600,
  methodNotFound: -32601,
  invalidParams: -32602,
  internalError: -32603,
  serverError: -32000,
} as const;

/** An answer that is an error. */
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

/** @throws RpcError */
export function readRpc(given: unknown): RpcRequest {
  if (given === undefined) throw new RpcError('parseError', 'Parse error: there is no body');
  if (!isObject(given)) throw new RpcError('invalidRequest', 'Invalid request: it must be an object');
  const { jsonrpc, id = null, method, params = {} } = given;
  if (jsonrpc !== '2.0') throw new RpcError('invalidRequest', 'Invalid request: jsonrpc must be "2.0"');
  if (typeof method !== 'string') {
    throw new RpcError('invalidRequest', 'Invalid request: method must be a string');
  }
  if (!isObject(params)) throw new RpcError('invalidParams', 'Params must be an object');
  return { id, method, params };
}

export const rpcSuccess = (id: Json, result: JsonObject): JsonObject => ({ jsonrpc: '2.0', id, result });

export const rpcFailure = (id: Json, { code, message, data }: RpcError): JsonObject => ({
  jsonrpc: '2.0',
  id,
  error: { code, message, ...(data && { data }) },
});

/** The id of what may not even be a request. */
export function rpcId(given: unknown): Json {
  return isObject(given) ? (given.id ?? null) : null;
}
