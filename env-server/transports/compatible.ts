import type { FastifyInstance } from 'fastify';
import type { SessionManager } from '../sessions/manager.ts';
import type { Dispatcher } from '../stages/dispatcher.ts';
import { addGymRoutes } from './gym/routes.ts';
import { addMcpRoutes } from './mcp/streamable-http.ts';
import { addNemoGymRoutes } from './nemo-gym/routes.ts';
import { addOpenEnvRoutes, type OpenEnvSettings } from './openenv/routes.ts';
import { addOrsRoutes } from './ors/routes.ts';
import type { ProblemHandler } from './replies/problem-handler.ts';

/** Transports for clients of other servers. */
export async function addCompatibleTransports(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  settings: OpenEnvSettings,
): Promise<void> {
  await app.register(async scope => {
    countBodies(scope, dispatcher.services.sessions);
    await addOpenEnvRoutes(scope, dispatcher, problemHandler, settings);
    await addGymRoutes(scope, dispatcher, problemHandler);
    await addMcpRoutes(scope, dispatcher, problemHandler);
    await addOrsRoutes(scope, dispatcher, problemHandler);
    addNemoGymRoutes(scope, dispatcher, problemHandler);
  });
}

/** A handler may run another operation before the one that the body is for; it holds the body until then. */
function countBodies(scope: FastifyInstance, { pendingInputs }: SessionManager): void {
  scope.addHook('onRoute', route => {
    const { handler } = route;
    route.handler = function (request, reply) {
      const { body, principal } = request;
      if (body === undefined) return handler.call(this, request, reply);
      pendingInputs.requireRoom(principal.name, body, false);
      const result: unknown = handler.call(this, request, reply);
      if (result instanceof Promise) pendingInputs.hold(principal.name, body, result);
      return result;
    };
  });
}
