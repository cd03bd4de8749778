import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { ServerOperation, SessionOperation } from '../operations/operation.ts';
import type { Session } from '../sessions/session.ts';
import type { Call } from './call.ts';

/** Runs the handler of an operation on a session when the operations that came before it are done. */
export function perform(call: Call): MaybePromise<unknown> {
  if (call.operation.keyed) call.services.sessions.recorder?.requireRoom();
  return call.session!.exclusive(call.key === undefined ? handle : handleUnderKey, call);
}

function handle(session: Session, { services, operation, input }: Call): MaybePromise<unknown> {
  return (operation as SessionOperation).handle(services, session, input);
}

/** The first record of what the handler does has the request key; where it makes none, a record has the reply. */
function handleUnderKey(session: Session, call: Call): MaybePromise<unknown> {
  session.beginUnderKey(call.key!, call.input);
  try {
    const reply = handle(session, call);
    if (reply instanceof Promise) return underKeyLater(reply, session, call);
    session.answerUnderKey(call.operation.name, reply);
    return reply;
  } catch (error) {
    session.failUnderKey();
    throw error;
  }
}

async function underKeyLater(
  handled: Promise<unknown>,
  session: Session,
  { operation }: Call,
): Promise<unknown> {
  try {
    const reply = await handled;
    session.answerUnderKey(operation.name, reply);
    return reply;
  } catch (error) {
    session.failUnderKey();
    throw error;
  }
}

/** Runs the handler of an operation on the server as a whole. */
export function performOnServer({ services, operation, input, request }: Call): MaybePromise<unknown> {
  if (operation.keyed && operation.tag === 'sessions') services.sessions.requireRoom();
  return (operation as ServerOperation).handle(services, request.principal, input);
}
