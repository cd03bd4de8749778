import { performance } from 'node:perf_hooks';
import { chain, type MaybePromise } from '../../shared/maybe-promise.ts';
import { Problem } from '../../shared/problems.ts';
import type { Principal } from '../sessions/principal.ts';
import { plainResult } from './foreign.ts';
import type { Operation, OperationInput, ServerOperation, Services } from './operation.ts';
import { elsewhere, workplace } from './peers.ts';
import type { TraceContext } from './tracing.ts';

/** One request from a client: it may hold many operations. Clocks are read as seldom as can be: they cost as much as a step. */
export interface Call {
  readonly principal: Principal;
  /** Differs from request to request. */
  readonly request: number;
  /** When it came, in milliseconds since the epoch. */
  readonly now: number;
  /** When the operation that comes next began, in milliseconds of `performance.now`. */
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
): Call {
  services.sessions.requireServing();
  return { principal, request, now: services.sessions.now(), mark: performance.now(), trace };
}

const MS_PER_S = 1000;

/**
 * Runs an operation whose input was checked against its schemas. What is ready at once comes at once.
 * @throws Problem, or what the environment code threw (see `problemOf`)
 */
export function execute(
  services: Services,
  call: Call,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { tracing } = services;
  if (!tracing) return route(services, call, operation, input);
  return tracing.operation(call.trace, operation, input, () => route(services, call, operation, input));
}

/** Runs an operation here, or where its session or key is kept. */
function route(
  services: Services,
  call: Call,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { peers } = services;
  if (!peers) return run(services, call, operation, input);
  const keeper = elsewhere(peers, call.principal, input, keyOf(operation, input));
  return keeper === undefined
    ? run(services, call, operation, input)
    : peers.perform(keeper, call.principal, call.request, operation, input);
}

/** Runs an operation in this process, whoever asked for it. */
export function run(
  services: Services,
  call: Call,
  operation: Operation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { principal } = call;
  if (!principal.scopes.has(operation.scope) && !principal.scopes.has('admin')) {
    const problem = new Problem(
      'forbidden',
      `${operation.name} needs a token with the scope ${operation.scope}`,
    );
    if (operation.audited) {
      const { env_id: envId, definition } = input;
      const attempt = { principal, action: operation.audited, envId: String(envId), definition };
      services.registrations.audit.refused(attempt, problem);
    }
    throw problem;
  }
  if (operation.target === 'server') {
    const work = () => onServer(services, call, operation, input);
    const key = keyOf(operation, input);
    const reply =
      key === undefined
        ? work()
        : services.sessions.replies(principal.name).once(key, operation.name, input, call.request, work);
    return reply instanceof Promise ? inTime(reply, services.stepTimeoutMs, operation) : reply;
  }
  const session = services.sessions.find(principal, input.session_id as string, call.now);
  const work = () => operation.handle(services, session, input);
  const key = keyOf(operation, input);
  const result =
    key === undefined
      ? session.exclusive(work)
      : session.replies.once(key, operation.name, input, call.request, () => session.exclusive(work));
  const { tally } = session.variant;
  const start = call.mark;
  if (!(result instanceof Promise)) {
    call.mark = performance.now();
    tally.record(operation.name, (call.mark - start) / MS_PER_S);
    return result;
  }
  const timeout = (input.timeout_ms as number | undefined) ?? services.stepTimeoutMs;
  return chain(inTime(result, timeout, operation), value => {
    tally.record(operation.name, (performance.now() - start) / MS_PER_S);
    return value;
  });
}

function onServer(
  services: Services,
  { principal, request }: Call,
  operation: ServerOperation,
  input: OperationInput,
): MaybePromise<unknown> {
  const { peers } = services;
  const place = peers && workplace(peers, operation);
  if (place === undefined) return operation.handle(services, principal, input);
  // Its key is honoured here; over there it would be sent on to where it is kept.
  const { request_key: _kept, ...asked } = input;
  return peers!.perform(place, principal, request, operation, asked).then(plainResult);
}

function keyOf(operation: Operation, { request_key }: OperationInput): string | undefined {
  return operation.keyed && typeof request_key === 'string' ? request_key : undefined;
}

function inTime<T>(result: Promise<T>, timeoutMs: number, operation: Operation): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      reject(
        new Problem('step_timeout', `${operation.name} was not done within ${timeoutMs} ms; it goes on`, {
          retryAfterSeconds: 1,
        }),
      );
    }, timeoutMs);
    result.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
