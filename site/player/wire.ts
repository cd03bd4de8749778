import type { components } from '../../openapi/schema.d.ts';
import type { Json } from '../../shared/json.ts';
import { RequestFailed } from '../components/request.ts';

/** Types of everything sent or received, as in the server's contract. */
export type Schemas = components['schemas'];

export type Environment = Schemas['Environment'];
export type EnvironmentSummary = Schemas['EnvironmentSummary'];
export type Session = Schemas['Session'];
export type SessionDetail = Schemas['SessionDetail'];
export type Replay = Schemas['Replay'];
export type StepResult = Schemas['StepResult'];
export type TrajectoryRecord = Schemas['TrajectoryRecord'];
export type Observation = Schemas['Observation'];
export type Reseed = Schemas['Reseed'];
export type WrapperChoice = Schemas['WrapperChoice'];
export type Registration = Schemas['Registration'];

/** A session as the WebSocket operation `watch` sends it. */
export type SessionCard = Schemas['SessionCard'];

/** A taken step. */
export interface PlayedStep {
  readonly action: Json;
  readonly observation: Observation;
  readonly reward: number;
  readonly terminated: boolean;
  readonly truncated: boolean;
  readonly info: Schemas['Info'];
}

/** Environment server operations used for playing. */
export type Operation =
  | 'get_environment'
  | 'describe_environment'
  | 'create'
  | 'step'
  | 'reset'
  | 'snapshot'
  | 'restore'
  | 'reference'
  | 'render'
  | 'close';

export type BatchReply = Schemas['BatchReply'];

export interface BatchItem {
  readonly op: Schemas['BatchItem']['op'];
  readonly [parameter: string]: unknown;
}

/** An environment server as a page reaches it. */
export interface EnvironmentServer {
  /**
   * @param parameters by their names in the contract, including `session_id` and `env_id`
   * @throws RequestFailed, ServerAway
   */
  run<T>(operation: Operation, parameters: { readonly [name: string]: unknown }): Promise<T>;
  /** Many operations in one request. @throws RequestFailed, ServerAway */
  batch(items: readonly BatchItem[]): Promise<readonly BatchReply[]>;
}

/** Result of an item of a batch. @throws RequestFailed */
export function resultOf<T>(reply: BatchReply): T {
  if ('error' in reply) throw new RequestFailed(reply.error);
  return ('result' in reply ? reply.result : undefined) as T;
}

/**
 * A server reached by batches.
 * @param create opens a session where that has its own route
 */
export function batchServer(
  batch: EnvironmentServer['batch'],
  create?: (parameters: object) => Promise<unknown>,
): EnvironmentServer {
  return {
    batch,
    async run<T>(op: Operation, parameters: object) {
      if (op === 'create' && create) return (await create(parameters)) as T;
      const [reply] = await batch([{ op, ...parameters }]);
      const result = resultOf<{ readonly structured?: unknown }>(reply);
      return (op === 'render' ? result.structured : result) as T;
    },
  };
}
