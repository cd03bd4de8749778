import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { OperationInput } from '../operations/declaration.ts';
import type { Operation, Services, TraceContext } from '../operations/operation.ts';
import type { Principal } from '../sessions/principal.ts';
import type { Session } from '../sessions/session.ts';

/** One request of a client; a batch holds many calls. Clocks are read as seldom as can be: they cost as much as a step. */
export interface ClientRequest {
  readonly principal: Principal;
  /** Differs from request to request. */
  readonly number: number;
  /** Time of arrival, in milliseconds of the server's clock. */
  readonly now: number;
  /** Start of the operation that comes next, in milliseconds of `performance.now`. */
  mark: number;
  readonly trace: TraceContext | undefined;
}

/** One operation on its way through the stages, its input checked against the operation's schemas. */
export interface Call {
  readonly services: Services;
  readonly operation: Operation;
  readonly input: OperationInput;
  readonly request: ClientRequest;
  /** The session that the operation is on, once it is located. */
  session: Session | undefined;
  /** The request key under which the operation is performed, if it has one. */
  key: string | undefined;
}

/** The rest of the stages. It returns the result of the operation, in no form yet. */
export type Next = (call: Call) => MaybePromise<unknown>;

/**
 * One stage. What is ready at once returns at once, without a promise.
 * @throws Problem, or what the environment code threw (see `problemOf`)
 */
export type Stage = (call: Call, next: Next) => MaybePromise<unknown>;
