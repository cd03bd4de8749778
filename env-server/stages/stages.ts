import { performance } from 'node:perf_hooks';
import type { Json } from '../../shared/json.ts';
import { chain, type MaybePromise } from '../environments/core/maybe-promise.ts';
import {
  type Call,
  type ClientRequest,
  type Operation,
  type OperationInput,
  type ServerOperation,
  type Services,
  type SessionOperation,
  type TraceContext,
  WrittenResult,
} from '../operations/operation.ts';
import type { CreatedSession } from '../operations/schemas/session.ts';
import { Problem } from '../problems.ts';
import { scheduler } from '../scheduling/fair-scheduler.ts';
import type { Principal } from '../sessions/principal.ts';
import { fingerprint } from '../sessions/replies/reply-cache.ts';
import type { Session } from '../sessions/session.ts';
import type { SessionEffect } from '../sessions/storage/shared-sessions.ts';

/** The remaining stages. It returns the result of the operation, not yet encoded. */
type Next = (call: Call) => MaybePromise<unknown>;

/**
 * One stage. It acts before it passes the call on, or on the result. A result that is ready at once is returned without a
 * promise.
 * @throws Problem, or what the environment code threw (see `problemOf`)
 */
type Stage = (call: Call, next: Next) => MaybePromise<unknown>;

/**
 * The stages of an operation's call, from the transport that decoded it to its handler; the result returns the same way, and
 * the transport encodes it as a reply. The rest of this file follows this order.
 */
export function stagesOf({ target, keyed }: Operation, { tracing, shared }: Services): readonly Stage[] {
  const isOnSession = target === 'session';
  return [
    // The call is a span of its trace.
    ...(tracing ? [trace] : []),
    // The token has the scope.
    admit,
    // The session is this server's, and in memory.
    ...(shared ? [share] : []),
    isOnSession ? locate : resume,
    // Back: the result is stored, in time and counted.
    isOnSession ? record : recordOnServer,
    // The memory of waiting inputs is bounded.
    budget,
    // A repeated request key gets the reply of the first request.
    ...(keyed ? [isOnSession ? once : onceForClient] : []),
    // The handler runs, after the session's earlier operations.
    isOnSession ? perform : performOnServer,
  ];
}

/** Runs an operation with validated input. The stages are composed to one function, so no list is walked for a call. */
export function runner(
  operation: Operation,
  services: Services,
): (request: ClientRequest, input: OperationInput) => MaybePromise<unknown> {
  const pass = stagesOf(operation, services).reduceRight<Next>(
    (next, stage) => call => stage(call, next),
    () => {
      throw new Error(`no stage performs ${operation.name}`);
    },
  );
  return (request, input) =>
    pass({ services, operation, input, request, session: undefined, key: undefined });
}

let requests = 0;

/**
 * Begins a request. Its transport has checked pace, size, host, origin and token.
 * @throws Problem `draining`
 */
export function beginRequest(
  { sessions }: Services,
  principal: Principal,
  trace?: TraceContext,
): ClientRequest {
  if (sessions.shutdown.suspended) sessions.shutdown.requireServing();
  const mark = scheduler.begun ?? performance.now();
  return { principal, number: ++requests, now: sessions.clock.at(mark), mark, trace };
}

// A function that contains a closure allocates its context on every call, needed or not. So the functions of every step
// contain none; code that needs one is a separate function.

/** Puts a call into a span of its trace. */
function trace(call: Call, next: Next): MaybePromise<unknown> {
  const { services, operation, input, request } = call;
  return services.tracing!.operation(request.trace, operation, input, () => next(call));
}

/** Checks that the token has the operation's scope. */
function admit(call: Call, next: Next): MaybePromise<unknown> {
  const { scopes } = call.request.principal;
  if (!scopes.has(call.operation.scope) && !scopes.has('admin')) throw forbidden(call);
  return next(call);
}

/** Problem of a principal without the scope; for audited operations the attempt is logged. */
function forbidden({ services, operation, input, request: { principal } }: Call): Problem {
  const problem = new Problem(
    'forbidden',
    `${operation.name} needs a token with the scope ${operation.scope}`,
  );
  if (operation.audited) {
    const { env_id: envId, definition } = input;
    const attempt = { principal, action: operation.audited, envId: String(envId), definition };
    services.registrations.audit.refused(attempt, problem);
  }
  return problem;
}

/** Performs a call when this server writes its session in the store that several servers share. */
function share(call: Call, next: Next): Promise<unknown> {
  const { services, operation, input, request } = call;
  const shared = services.shared!;
  const { session_id: id } = input;
  const work = () => next(call);
  if (typeof id === 'string') return shared.perform(request.principal, id, effectOf(operation), work);
  return shared.refreshEnvironments().then(work);
}

/** Effect of an operation on its session. */
function effectOf({ keyed, name }: Operation): SessionEffect {
  return name === 'clone' ? 'copies' : keyed ? 'writes' : 'reads';
}

/** Finds the session of a call; sessions of an earlier process are resumed first. */
function locate(call: Call, next: Next): MaybePromise<unknown> {
  const { sessions } = call.services;
  if (sessions.resumption) return afterResumption(call, locate, next);
  const { principal, now } = call.request;
  call.session = sessions.find(principal, call.input.session_id as string, now);
  return next(call);
}

/** Delays a call without a session until the sessions of an earlier process are resumed. */
function resume(call: Call, next: Next): MaybePromise<unknown> {
  return call.services.sessions.resumption ? afterResumption(call, resume, next) : next(call);
}

/** @throws Problem `worker_unavailable` when that takes longer than a step may, `too_many_requests`, with nothing done */
async function afterResumption(call: Call, stage: Stage, next: Next): Promise<unknown> {
  const { services, input, request } = call;
  const { sessions, stepTimeoutMs } = services;
  const { name: client } = request.principal;
  sessions.pendingInputs.requireRoom(client, input, true);
  const resumed = inTime(Promise.resolve(sessions.resumption), stepTimeoutMs, resuming);
  sessions.pendingInputs.hold(client, input, resumed);
  await resumed;
  sessions.shutdown.requireServing();
  return stage(call, next);
}

/** Problem of a request while sessions of an earlier process are incomplete. */
export function resuming(): Problem {
  return new Problem('worker_unavailable', 'the server resumes sessions from its journal');
}

const MS_PER_S = 1000;

/** Returns a result once it is stored, within the client's timeout, and counts its duration. */
function record(call: Call, next: Next): MaybePromise<unknown> {
  const result = next(call);
  const { operation, request } = call;
  const session = call.session!;
  if (result instanceof Promise || session.storing) return recordLater(call, session, result);
  const start = request.mark;
  request.mark = performance.now();
  session.variant.counters.record(operation.name, (request.mark - start) / MS_PER_S);
  return result;
}

function recordLater(
  { services, operation, input, request }: Call,
  session: Session,
  result: MaybePromise<unknown>,
): Promise<unknown> {
  const timeoutMs = (input.timeout_ms as number | undefined) ?? services.stepTimeoutMs;
  const start = request.mark;
  const stored = whenStored(session, operation, result);
  return inTime(stored, timeoutMs, () => late(operation, timeoutMs)).then(value => {
    session.variant.counters.record(operation.name, (performance.now() - start) / MS_PER_S);
    session.usedAt = services.sessions.now();
    return value;
  });
}

/** The result of an operation, once the database has what the journal could not take of its session. Reads do not wait. */
async function whenStored(
  session: Session,
  { keyed }: Operation,
  result: MaybePromise<unknown>,
): Promise<unknown> {
  const value = await result;
  if (keyed) await session.storing;
  return value;
}

/** Returns the result of a call without a session within the client's timeout. */
function recordOnServer(call: Call, next: Next): MaybePromise<unknown> {
  const result = next(call);
  if (result instanceof Promise) return inServerTime(call, result);
  call.request.mark = performance.now();
  return result;
}

function inServerTime({ services, operation }: Call, result: Promise<unknown>): Promise<unknown> {
  const { stepTimeoutMs } = services;
  return inTime(result, stepTimeoutMs, () => late(operation, stepTimeoutMs));
}

/** Rejects with the problem when a result takes longer; the work continues. */
function inTime<T>(result: Promise<T>, timeoutMs: number, problem: () => Problem): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(problem()), timeoutMs);
    result.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function late({ name }: Operation, timeoutMs: number): Problem {
  return new Problem('step_timeout', `${name} was not done within ${timeoutMs} ms; it continues`);
}

/** Limits the memory of inputs until their operations are done. */
function budget(call: Call, next: Next): MaybePromise<unknown> {
  const { pendingInputs } = call.services.sessions;
  const { name: client } = call.request.principal;
  if (pendingInputs.isTight) pendingInputs.requireRoom(client, call.input, call.session?.busy ?? false);
  const result = next(call);
  if (result instanceof Promise) pendingInputs.hold(client, call.input, result);
  return result;
}

/** Answers a repeated request key with the reply that its session remembers. */
function once(call: Call, next: Next): MaybePromise<unknown> {
  const { request_key: key } = call.input;
  return typeof key === 'string' ? onceInSession(key, call, next) : next(call);
}

function onceInSession(key: string, call: Call, next: Next): MaybePromise<unknown> {
  const { operation, input, request } = call;
  call.key = key;
  let isFirst = false;
  const work = () => {
    isFirst = true;
    return next(call);
  };
  const reply = call.session!.replies.once(key, operation.name, input, work, request.number);
  return isFirst || operation.name !== 'clone' ? reply : used(call, reply);
}

/** A repeated request may be the first that its client gets a reply to: it uses the sessions that the first one opened. */
function used({ services, request, session }: Call, reply: MaybePromise<unknown>): MaybePromise<unknown> {
  const owner = session?.owner ?? request.principal.name;
  return chain(reply, value => {
    services.sessions.use(owner, openedIn(value));
    return value;
  });
}

/** In a long reply. An observation may name other sessions; only those of the client count. */
const OPENED_ID = /"session_id":"([\w-]{1,128})"/g;

/** Ids of the sessions that a request opened, by its reply. */
function openedIn(reply: unknown): readonly string[] {
  if (reply instanceof WrittenResult) return Array.from(reply.text.matchAll(OPENED_ID), ([, id]) => id);
  const { session_id: id, sessions } = (reply ?? {}) as Partial<CreatedSession>;
  return sessions?.map(each => each.session_id) ?? (id === undefined ? [] : [id]);
}

/** The same for a call without a session: its client's replies are remembered, also in a store that servers share. */
function onceForClient(call: Call, next: Next): MaybePromise<unknown> {
  const { services, operation, input, request } = call;
  const { sessions, shared } = services;
  const { request_key: key } = input;
  if (typeof key !== 'string') return next(call);
  const { name: owner } = request.principal;
  const asked = () => fingerprint(input);
  /** Resolves when the database has a reply that the journal cannot take. */
  let storing: Promise<void> | undefined;
  let isFirst = false;
  const first = () => {
    isFirst = true;
    return next(call);
  };
  const work = shared
    ? () => shared.once(owner, key, operation.name, asked(), first)
    : () =>
        chain(first(), reply => {
          const record = { owner, key, operation: operation.name, asked: asked(), reply: reply as Json };
          storing = sessions.recorder?.clientReply(record);
          return reply;
        });
  const reply = sessions.replies(owner).once(key, operation.name, input, work, request.number);
  const stored = chain(reply, value => storing?.then(() => value) ?? value);
  return isFirst || operation.name !== 'create' ? stored : used(call, stored);
}

/** Runs the handler of an operation on a session after its earlier operations. */
function perform(call: Call): MaybePromise<unknown> {
  const { operation, services, key } = call;
  if (operation.keyed) services.sessions.recorder?.requireRoom();
  const { handle } = operation as SessionOperation;
  return call.session!.exclusive(key === undefined ? handle : handleUnderKey, call);
}

/** The handler's first record has the request key; if it makes none, a record with the reply is added. */
function handleUnderKey(session: Session, call: Call): MaybePromise<unknown> {
  session.underKey = { key: call.key!, input: call.input };
  try {
    const reply = (call.operation as SessionOperation).handle(session, call);
    if (reply instanceof Promise) return underKeyLater(reply, session, call);
    recordReply(session, call, reply);
    return reply;
  } catch (error) {
    session.underKey = undefined;
    throw error;
  }
}

async function underKeyLater(handled: Promise<unknown>, session: Session, call: Call): Promise<unknown> {
  try {
    const reply = await handled;
    recordReply(session, call, reply);
    return reply;
  } catch (error) {
    session.underKey = undefined;
    throw error;
  }
}

function recordReply(session: Session, { services, operation }: Call, reply: unknown): void {
  const { recorder } = services.sessions;
  const fields = recorder && session.keyUnderWay;
  session.underKey = undefined;
  if (!fields) return;
  recorder.append(session, 'reply', { ...fields, operation: operation.name, reply: reply as Json });
}

/** Runs the handler of an operation on the server. */
function performOnServer(call: Call): MaybePromise<unknown> {
  const { operation, services } = call;
  if (operation.keyed && operation.tag === 'sessions') services.sessions.recorder?.requireRoom();
  return (operation as ServerOperation).handle(call);
}
