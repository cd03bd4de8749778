import type { JsonObject } from '../../../shared/json.ts';

/**
 * OpenEnv's protocol, shared by the client of remote environments and the transport in `transports/openenv`. After
 * `src/openenv/core/env_server` (`types.py`, `http_server.py`) of OpenEnv.
 */

/** Code of an error frame. */
export type OpenEnvCode =
  | 'INVALID_JSON'
  | 'UNKNOWN_TYPE'
  | 'VALIDATION_ERROR'
  | 'EXECUTION_ERROR'
  | 'CAPACITY_REACHED'
  | 'FACTORY_ERROR'
  | 'SESSION_ERROR';

/** Header that identifies a session over HTTP. */
export const SESSION_HEADER = 'x-session-id';

/** Reply to reset and step. */
export interface OpenEnvReply {
  readonly observation: JsonObject;
  readonly reward: number;
  readonly done: boolean;
}

/** One fault of a request in Pydantic's form: in `errors` of an error frame and in `detail` of a 422. */
export type RequestFault = {
  readonly type: string;
  /** Path in the request: keys and indices from the outside in. */
  readonly loc: readonly (string | number)[];
  readonly msg: string;
};
