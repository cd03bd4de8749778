import { performance } from 'node:perf_hooks';
import type { Json } from '../../../shared/json.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import { scheduler } from '../../scheduling/fair-scheduler.ts';
import type { Principal } from '../../sessions/principal.ts';
import { fingerprint } from '../../sessions/replies/reply-cache.ts';
import type { Session } from '../../sessions/session.ts';
import type { SessionEffect, SharedSessions } from '../../sessions/storage/shared-sessions.ts';
import type { OperationInput } from '../declaration.ts';
import type { Operation, ServerOperation, Services, SessionOperation } from '../operation.ts';
import type { TraceContext, Tracing } from './tracing.ts';

/** One request from a client: it may hold many operations. Clocks are read as seldom as can be: they cost as much as a step. */
export interface OperationCall {
  readonly principal: Principal;
  /** Differs from request to request. */
  readonly request: number;
  /** Time of arrival, in milliseconds since the epoch. */
  readonly now: number;
  /** Start of the operation that comes next, in milliseconds of `performance.now`. */
  mark: number;
  readonly trace: TraceContext | undefined;
}

let requests = 0;

/**
 * Begins a request.
 * @param request its number, where it began in another process
 * @throws Problem `draining`
 */
export function newCall(
  services: Services,
  principal: Principal,
  trace?: TraceContext,
  request: number = ++requests,
): OperationCall {
  const { sessions } = services;
  sessions.requireServing();
  const mark = scheduler.begun ?? performance.now();
  return { principal, request, now: sessions.clock.at(mark), mark, trace };
}

const MS_PER_S = 1000;
const RETRY_AFTER_SECONDS = 1;

/**
 * Runs an operation with an input that was checked against its schemas. What is ready at once comes at once.
 * @throws Problem, or what the environment code threw (see `problemOf`)
 */
export function execute(
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { tracing } = services;
  return tracing
    ? traced(tracing, services, call, operation, input)
    : route(services, call, operation, input);
}

// A function with a closure in it makes room for what the closure sees whenever it is called, needed or not: so what
// runs at every step has none; code that needs one is a separate function.

function traced(
  tracing: Tracing,
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  return tracing.operation(call.trace, operation, input, () => route(services, call, operation, input));
}

/** Runs an operation; on a session of a shared store when this server writes that session. */
function route(
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  return services.shared
    ? onShared(services.shared, services, call, operation, input)
    : run(services, call, operation, input);
}

/** Effect of an operation on its session. */
function effectOf({ keyed, name }: Operation): SessionEffect {
  return name === 'clone' ? 'copies' : keyed ? 'writes' : 'reads';
}

async function onShared(
  shared: SharedSessions,
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): Promise<unknown> {
  const { session_id: id } = input;
  const work = () => run(services, call, operation, input);
  if (typeof id === 'string') return shared.perform(call.principal, id, effectOf(operation), work);
  await shared.refreshEnvironments();
  return work();
}

/** Runs an operation after the sessions of an earlier process are resumed. */
function run(
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  return services.sessions.resumption
    ? afterResumption(services, call, operation, input)
    : runNow(services, call, operation, input);
}

/** @throws Problem `worker_unavailable` when that takes longer than a step may, `too_many_requests`, with nothing done */
async function afterResumption(
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): Promise<unknown> {
  const { sessions, stepTimeoutMs } = services;
  const { name: client } = call.principal;
  sessions.pendingInputs.requireRoom(client, input, true);
  const resumed = inTime(Promise.resolve(sessions.resumption), stepTimeoutMs, resuming);
  sessions.pendingInputs.hold(client, input, resumed);
  await resumed;
  sessions.requireServing();
  return runNow(services, call, operation, input);
}

function runNow(
  services: Services,
  call: OperationCall,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { scopes } = call.principal;
  if (!scopes.has(operation.scope) && !scopes.has('admin')) throw forbidden(services, call, operation, input);
  return operation.target === 'server'
    ? onServer(services, call, operation, input)
    : onSession(services, call, operation, input);
}

/** Problem of a principal without the scope; the audit log notes the attempt if the operation is audited. */
function forbidden(
  services: Services,
  { principal }: OperationCall,
  operation: Operation,
  input: OperationInput,
): Problem {
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

function onSession(
  services: Services,
  call: OperationCall,
  operation: SessionOperation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { sessions } = services;
  const { name: client } = call.principal;
  const session = sessions.find(call.principal, input.session_id as string, call.now);
  const key = keyOf(operation, input);
  if (operation.keyed && key === undefined) sessions.requireRoom();
  sessions.pendingInputs.requireRoom(client, input, session.busy);
  const result =
    key === undefined
      ? session.exclusive(operation.handle, services, input)
      : once({ key, services, operation, request: call.request }, session, input);
  if (result instanceof Promise) sessions.pendingInputs.hold(client, input, result);
  if (result instanceof Promise || session.storing) {
    const timeout = (input.timeout_ms as number | undefined) ?? services.stepTimeoutMs;
    return recordedLater(whenStored(session, operation, result), call.mark, session, operation, timeout);
  }
  const start = call.mark;
  call.mark = performance.now();
  session.variant.counters.record(operation.name, (call.mark - start) / MS_PER_S);
  return result;
}

interface KeyedOperation {
  readonly key: string;
  readonly services: Services;
  readonly operation: SessionOperation;
  readonly request: number;
}

function once(keyed: KeyedOperation, session: Session, input: OperationInput): MaybePromise<unknown> {
  const { key, services, operation, request } = keyed;
  const work = () => {
    services.sessions.requireRoom();
    return session.exclusive(handleUnderKey, keyed, input);
  };
  return session.replies.once(key, operation.name, input, work, request);
}

function handleUnderKey(
  { key, services, operation }: KeyedOperation,
  session: Session,
  input: OperationInput,
): MaybePromise<unknown> {
  session.beginUnderKey(key, input);
  try {
    const reply = operation.handle(services, session, input);
    if (reply instanceof Promise) return underKeyLater(reply, session, operation);
    session.answerUnderKey(operation.name, reply);
    return reply;
  } catch (error) {
    session.failUnderKey();
    throw error;
  }
}

async function underKeyLater(
  handled: Promise<unknown>,
  session: Session,
  { name }: SessionOperation,
): Promise<unknown> {
  try {
    const reply = await handled;
    session.answerUnderKey(name, reply);
    return reply;
  } catch (error) {
    session.failUnderKey();
    throw error;
  }
}

/** Result of an operation, when the database has what the journal could not take of its session. Reads do not wait. */
async function whenStored(
  session: Session,
  { keyed }: SessionOperation,
  result: MaybePromise<unknown>,
): Promise<unknown> {
  const value = await result;
  if (keyed) await session.storing;
  return value;
}

function recordedLater(
  result: Promise<unknown>,
  start: number,
  session: Session,
  operation: SessionOperation,
  timeoutMs: number,
): Promise<unknown> {
  return inTime(result, timeoutMs, () => late(operation, timeoutMs)).then(value => {
    session.variant.counters.record(operation.name, (performance.now() - start) / MS_PER_S);
    return value;
  });
}

function onServer(
  services: Services,
  call: OperationCall,
  operation: ServerOperation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { sessions, stepTimeoutMs } = services;
  const { name: client } = call.principal;
  const key = keyOf(operation, input);
  sessions.pendingInputs.requireRoom(client, input, false);
  const reply =
    key === undefined
      ? performOnServer(services, call, operation, input)
      : onceForClient(key, services, call, operation, input);
  if (reply instanceof Promise) {
    sessions.pendingInputs.hold(client, input, reply);
    return inTime(reply, stepTimeoutMs, () => late(operation, stepTimeoutMs));
  }
  call.mark = performance.now();
  return reply;
}

function onceForClient(
  key: string,
  services: Services,
  call: OperationCall,
  operation: ServerOperation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { sessions, shared } = services;
  const { name: owner } = call.principal;
  const asked = () => fingerprint(input);
  /** Resolves when the database has a reply that the journal cannot take. */
  let storing: Promise<void> | undefined;
  const perform = () => performOnServer(services, call, operation, input);
  const work = shared
    ? () => shared.once(owner, key, operation.name, asked(), perform)
    : () =>
        chain(perform(), reply => {
          const record = { owner, key, operation: operation.name, asked: asked(), reply: reply as Json };
          storing = sessions.recorder?.clientReply(record);
          return reply;
        });
  const reply = sessions.replies(owner).once(key, operation.name, input, work, call.request);
  return chain(reply, value => storing?.then(() => value) ?? value);
}

function performOnServer(
  services: Services,
  { principal }: OperationCall,
  operation: ServerOperation,
  input: OperationInput,
): MaybePromise<unknown> {
  if (operation.keyed && operation.tag === 'sessions') services.sessions.requireRoom();
  return operation.handle(services, principal, input);
}

function keyOf(operation: Operation, { request_key }: OperationInput): string | undefined {
  return operation.keyed && typeof request_key === 'string' ? request_key : undefined;
}

function inTime<T>(result: Promise<T>, timeoutMs: number, problem: () => Problem): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(problem()), timeoutMs);
    result.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

function late({ name }: Operation, timeoutMs: number): Problem {
  return new Problem('step_timeout', `${name} was not done within ${timeoutMs} ms; it goes on`, {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}

/** Problem of a request while sessions of an earlier process are incomplete. */
export function resuming(): Problem {
  return new Problem('worker_unavailable', 'the server resumes sessions from its journal', {
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
