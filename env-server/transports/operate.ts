import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import type { OperationInput } from '../operations/declaration.ts';
import type { Dispatcher } from '../operations/dispatch/dispatcher.ts';
import { newCall } from '../operations/dispatch/execute.ts';
import { plainResult } from '../operations/dispatch/written-result.ts';
import type { Principal } from '../sessions/principal.ts';

/**
 * Runs an operation for a client that speaks another protocol, with the checks, limits and metrics of the other transports.
 * @throws Problem, or what the environment code threw (see `problemOf`)
 */
export function operate<T>(
  dispatcher: Dispatcher,
  principal: Principal,
  op: string,
  input: OperationInput,
): MaybePromise<T> {
  const call = newCall(dispatcher.services, principal);
  const result = dispatcher.perform(call, dispatcher.find(op), { op, ...input });
  return chain(result, value => plainResult(value) as T);
}
