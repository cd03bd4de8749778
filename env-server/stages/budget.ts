import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { Call, Next } from './call.ts';

/** Bounds the memory that inputs take until their operations are done. */
export function budget(call: Call, next: Next): MaybePromise<unknown> {
  const { pendingInputs } = call.services.sessions;
  const { name: client } = call.request.principal;
  if (pendingInputs.isTight) pendingInputs.requireRoom(client, call.input, call.session?.busy ?? false);
  const result = next(call);
  if (result instanceof Promise) pendingInputs.hold(client, call.input, result);
  return result;
}
