import { performance } from 'node:perf_hooks';
import type { MaybePromise } from '../environments/core/maybe-promise.ts';
import type { Services, TraceContext } from '../operations/operation.ts';
import { Problem } from '../problems.ts';
import { scheduler } from '../scheduling/fair-scheduler.ts';
import type { Principal } from '../sessions/principal.ts';
import type { Call, ClientRequest, Next } from './call.ts';

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
  if (sessions.shutdown.suspended) sessions.requireServing();
  const mark = scheduler.begun ?? performance.now();
  return { principal, number: ++requests, now: sessions.clock.at(mark), mark, trace };
}

/** Lets a call pass if its token has the scope of the operation. */
export function admit(call: Call, next: Next): MaybePromise<unknown> {
  const { scopes } = call.request.principal;
  if (!scopes.has(call.operation.scope) && !scopes.has('admin')) throw forbidden(call);
  return next(call);
}

/** Problem of a principal without the scope; the audit log notes the attempt if the operation is audited. */
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
