import { performance } from 'node:perf_hooks';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { Operation } from '../operations/operation.ts';
import { Problem } from '../problems.ts';
import type { Session } from '../sessions/session.ts';
import type { Call, Next } from './call.ts';

const MS_PER_S = 1000;
const RETRY_AFTER_SECONDS = 1;

/** Puts a call into a span of its trace. */
export function trace(call: Call, next: Next): MaybePromise<unknown> {
  const { services, operation, input, request } = call;
  return services.tracing!.operation(request.trace, operation, input, () => next(call));
}

/** Returns a result when it is stored, within the time that a client waits, and counts its duration. */
export function record(call: Call, next: Next): MaybePromise<unknown> {
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
    return value;
  });
}

/** Result of an operation, when the database has what the journal could not take of its session. Reads do not wait. */
async function whenStored(
  session: Session,
  { keyed }: Operation,
  result: MaybePromise<unknown>,
): Promise<unknown> {
  const value = await result;
  if (keyed) await session.storing;
  return value;
}

/** Returns the result of a call that is on no session within the time that a client waits. */
export function recordOnServer(call: Call, next: Next): MaybePromise<unknown> {
  const result = next(call);
  if (result instanceof Promise) return inServerTime(call, result);
  call.request.mark = performance.now();
  return result;
}

function inServerTime({ services, operation }: Call, result: Promise<unknown>): Promise<unknown> {
  const { stepTimeoutMs } = services;
  return inTime(result, stepTimeoutMs, () => late(operation, stepTimeoutMs));
}

/** Rejects with the problem when a result takes longer; the work goes on. */
export function inTime<T>(result: Promise<T>, timeoutMs: number, problem: () => Problem): Promise<T> {
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
