import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { Operation } from '../operations/operation.ts';
import { Problem } from '../problems.ts';
import type { SessionEffect } from '../sessions/storage/shared-sessions.ts';
import type { Call, Next } from './call.ts';
import { inTime } from './record.ts';

const RETRY_AFTER_SECONDS = 1;

/** Finds the session that a call is on; sessions of an earlier process are resumed first. */
export function locate(call: Call, next: Next): MaybePromise<unknown> {
  const { sessions } = call.services;
  if (sessions.resumption) return afterResumption(call, locate, next);
  const { principal, now } = call.request;
  call.session = sessions.find(principal, call.input.session_id as string, now);
  return next(call);
}

/** Lets a call that is on no session pass when the sessions of an earlier process are resumed. */
export function resume(call: Call, next: Next): MaybePromise<unknown> {
  return call.services.sessions.resumption ? afterResumption(call, resume, next) : next(call);
}

/** Performs a call when this server writes its session in the store that several servers share. */
export async function share(call: Call, next: Next): Promise<unknown> {
  const { services, operation, input, request } = call;
  const shared = services.shared!;
  const { session_id: id } = input;
  const work = () => next(call);
  if (typeof id === 'string') return shared.perform(request.principal, id, effectOf(operation), work);
  await shared.refreshEnvironments();
  return work();
}

/** Effect of an operation on its session. */
function effectOf({ keyed, name }: Operation): SessionEffect {
  return name === 'clone' ? 'copies' : keyed ? 'writes' : 'reads';
}

/** @throws Problem `worker_unavailable` when that takes longer than a step may, `too_many_requests`, with nothing done */
async function afterResumption(call: Call, stage: typeof locate, next: Next): Promise<unknown> {
  const { services, input, request } = call;
  const { sessions, stepTimeoutMs } = services;
  const { name: client } = request.principal;
  sessions.pendingInputs.requireRoom(client, input, true);
  const resumed = inTime(Promise.resolve(sessions.resumption), stepTimeoutMs, resuming);
  sessions.pendingInputs.hold(client, input, resumed);
  await resumed;
  sessions.requireServing();
  return stage(call, next);
}

/** Problem of a request while sessions of an earlier process are incomplete. */
export function resuming(): Problem {
  return new Problem('worker_unavailable', 'the server resumes sessions from its journal', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
