import type { FastifyInstance, FastifyReply } from 'fastify';
import type { Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import { traceIdOf } from '../monitoring/trace-requests.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { revalidateReplies } from '../replies/revalidation.ts';
import { batchRoute } from './batch-route.ts';
import { operationRoute, type RestReply, type RestRoute } from './route.ts';

/** A route for every operation, and one for batches. */
export function restRoutes(
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  mostBatchItems: number,
): RestRoute[] {
  return [
    ...dispatcher.operations.map(compiled => operationRoute(dispatcher, compiled)),
    batchRoute(dispatcher, problemHandler, mostBatchItems),
  ];
}

/** Serves routes by Fastify. */
export async function addRestRoutes(app: FastifyInstance, routes: readonly RestRoute[]): Promise<void> {
  const { true: tagged = [], false: others = [] } = Object.groupBy(
    routes,
    ({ revalidated }) => `${revalidated}` as const,
  );
  addRoutes(app, others);
  await app.register(async pages => {
    await revalidateReplies(pages);
    addRoutes(pages, tagged);
  });
}

function addRoutes(app: FastifyInstance, routes: readonly RestRoute[]): void {
  for (const { method, url, run } of routes) {
    app.route({
      method,
      url,
      handler(request, reply) {
        const { principal, trace, body, headers } = request;
        const result = run({
          principal,
          params: request.params as { [name: string]: string },
          query: request.query as { [name: string]: unknown },
          body,
          key: headers['idempotency-key'],
          trace,
          traceId: traceIdOf(request),
        });
        return result instanceof Promise ? result.then(value => send(reply, value)) : send(reply, result);
      },
    });
  }
}

function send(reply: FastifyReply, { status, contentType, body }: RestReply): FastifyReply {
  reply.code(status);
  if (contentType !== undefined) reply.header('content-type', contentType);
  return reply.send(body);
}
