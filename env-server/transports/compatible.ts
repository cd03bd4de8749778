import type { IncomingMessage } from 'node:http';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Dispatcher } from '../operations/dispatch/dispatcher.ts';
import { addGymRoutes } from './gym/routes.ts';
import { addMcpRoutes } from './mcp/routes.ts';
import { addOpenEnvRoutes, type OpenEnvSettings } from './openenv/routes.ts';
import type { ProblemDesk } from './replies/problems.ts';

/** The doors for clients of other servers. */
export async function addCompatibilityDoors(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  desk: ProblemDesk,
  settings: OpenEnvSettings,
): Promise<void> {
  await addOpenEnvRoutes(app, dispatcher, desk, settings);
  await addGymRoutes(app, dispatcher, desk);
  await addMcpRoutes(app, dispatcher, desk);
}

const DOORS = '/compat/';
const BASIC = /^basic (.+)$/i;

/**
 * The `Authorization` of a request. Clients that cannot send a bearer token put it into the address of these doors, as
 * the password: `http://any:token@host/compat/…`.
 */
export function authorizationOf(request: FastifyRequest | IncomingMessage): string | undefined {
  const { authorization } = request.headers;
  const basic = request.url?.startsWith(DOORS) ? BASIC.exec(authorization ?? '') : null;
  if (!basic) return authorization;
  const pair = Buffer.from(basic[1], 'base64').toString();
  return `Bearer ${pair.slice(pair.indexOf(':') + 1)}`;
}
