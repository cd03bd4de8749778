import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Dispatcher } from '../operations/dispatch/dispatcher.ts';
import type { SessionManager } from '../sessions/manager.ts';
import { addGymRoutes } from './gym/routes.ts';
import { addMcpRoutes } from './mcp/routes.ts';
import { addOpenEnvRoutes, type OpenEnvSettings } from './openenv/routes.ts';
import { isOrsPath } from './ors/requests.ts';
import { addOrsRoutes } from './ors/routes.ts';
import type { ProblemHandler } from './replies/problem-handler.ts';

/** The transports for clients of other servers. */
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
  });
}

/** A handler may run one operation before it comes to the one that the body is for: it holds the body meanwhile. */
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

const COMPATIBLE_ROUTES = '/compat/';
const BASIC = /^basic (.+)$/i;
/** The subprotocol by which a browser, which sends no header with a WebSocket, gives its token in base64url. */
const TOKEN_PROTOCOL = /(?:^|,)\s*ragen\.bearer\.([\w-]+)\s*(?:,|$)/;
const SOCKET = /^\/v1\/ws(\?|$)/;

/**
 * The `Authorization` of a request. Clients that cannot send a bearer token put it into the address of these transports, as
 * the password: `http://any:token@host/compat/…`; browsers put it into a subprotocol of their WebSocket, and clients of the
 * Open Reward Standard into `X-API-Key`.
 */
export function authorizationOf(request: FastifyRequest | IncomingMessage): string | undefined {
  const { authorization = socketAuthorization(request), 'x-api-key': key } = request.headers;
  const url = request.url ?? '';
  const isOrs = isOrsPath(url);
  if (isOrs && typeof key === 'string') return `Bearer ${key}`;
  const basic = isOrs || url.startsWith(COMPATIBLE_ROUTES) ? BASIC.exec(authorization ?? '') : null;
  if (!basic) return authorization;
  const pair = Buffer.from(basic[1], 'base64').toString();
  return `Bearer ${pair.slice(pair.indexOf(':') + 1)}`;
}

/** `Authorization` header of a WebSocket that gives its token as a subprotocol; undefined for any other request. */
function socketAuthorization({ url, headers }: Pick<IncomingMessage, 'url' | 'headers'>): string | undefined {
  if (headers.upgrade === undefined || !SOCKET.test(url ?? '')) return undefined;
  const token = TOKEN_PROTOCOL.exec(headers['sec-websocket-protocol'] ?? '')?.[1];
  return token === undefined ? undefined : `Bearer ${Buffer.from(token, 'base64url').toString()}`;
}
