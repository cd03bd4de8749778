import type { Json } from '../../shared/json.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import { fingerprint } from '../sessions/replies/reply-cache.ts';
import type { Call, Next } from './call.ts';

/** Answers a repeated request key with the reply that its session remembers. */
export function once(call: Call, next: Next): MaybePromise<unknown> {
  const { request_key: key } = call.input;
  return typeof key === 'string' ? onceInSession(key, call, next) : next(call);
}

// A function with a closure in it makes room for what the closure sees whenever it is called, needed or not: so what
// runs at every step has none; code that needs one is a separate function.

function onceInSession(key: string, call: Call, next: Next): MaybePromise<unknown> {
  const { operation, input, request } = call;
  call.key = key;
  return call.session!.replies.once(key, operation.name, input, () => next(call), request.number);
}

/** The same for a call that is on no session: its client's replies are remembered, also in a store that servers share. */
export function onceForClient(call: Call, next: Next): MaybePromise<unknown> {
  const { services, operation, input, request } = call;
  const { sessions, shared } = services;
  const { request_key: key } = input;
  if (typeof key !== 'string') return next(call);
  const { name: owner } = request.principal;
  const asked = () => fingerprint(input);
  /** Resolves when the database has a reply that the journal cannot take. */
  let storing: Promise<void> | undefined;
  const work = shared
    ? () => shared.once(owner, key, operation.name, asked(), () => next(call))
    : () =>
        chain(next(call), reply => {
          const record = { owner, key, operation: operation.name, asked: asked(), reply: reply as Json };
          storing = sessions.recorder?.clientReply(record);
          return reply;
        });
  const reply = sessions.replies(owner).once(key, operation.name, input, work, request.number);
  return chain(reply, value => storing?.then(() => value) ?? value);
}
