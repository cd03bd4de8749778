import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import type { JsonObject } from '../../../shared/json.ts';
import { SESSION_HEADER } from '../../custom/remote/openenv-protocol.ts';
import type { Dispatcher } from '../../operations/dispatch/dispatcher.ts';
import type { Peers } from '../../operations/dispatch/peers.ts';
import { problemOf } from '../../operations/dispatch/problem-of.ts';
import type { EnvironmentDocument } from '../../operations/schemas.ts';
import type { SessionLimits } from '../../sessions/admission.ts';
import { RpcError, rpcFailure } from '../mcp/json-rpc.ts';
import { operate } from '../operate.ts';
import type { ProblemDesk } from '../replies/problems.ts';
import { sendJsonText } from '../replies/send.ts';
import { heartbeat } from '../websocket/heartbeat.ts';
import type { PacedWebSocket } from '../websocket/paced-websocket.ts';
import { actionForm } from './action-form.ts';
import { sessionOfCookie, setSessionCookie } from './cookie.ts';
import { metadataOf, openApiOf, schemasOf } from './describe.ts';
import { countable, InvalidMessage, within } from './faults.ts';
import { McpDesk } from './mcp.ts';
import { addMcpRoutes } from './mcp-routes.ts';
import { readReset, readStep } from './messages.ts';
import { OpenEnvPlay, type Shown, shownText } from './play.ts';
import { toSeatKeeper } from './seat-keeper.ts';
import { type HttpCaller, Seats } from './seats.ts';
import type { SocketServices } from './session-socket.ts';
import { isToolAction, toolAction } from './tool-actions.ts';
import { OpenEnvSocket } from './websocket.ts';

const HTTP_INVALID = 422;
const HTTP_UNAVAILABLE = 503;
/** The state for a client that has no session. */
const NOTHING_BEGUN = JSON.stringify({ episode_id: null, step_count: 0 });
/** Longest name of a session, in characters. */
const LONGEST_NAME = 128;
/** The id of an environment as one part of the path, with `%2F` in it, or as two. */
const PREFIXES = ['/compat/openenv/:name', '/compat/openenv/:namespace/:name'];

export interface OpenEnvSettings extends Pick<SessionLimits, 'maxSessions'> {
  readonly heartbeatSeconds: number;
}

/** `/compat/openenv/{env_id}/…`: every environment as a server of OpenEnv. */
export async function addOpenEnvRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  desk: ProblemDesk,
  settings: OpenEnvSettings,
): Promise<void> {
  const play = new OpenEnvPlay(dispatcher);
  const mcp = new McpDesk(play, desk);
  const seats = new Seats(play, settings.maxSessions);
  const { sessions } = dispatcher.services;
  const services = { play, mcp, desk, deliver: (reply: () => void) => sessions.deliver(reply) };
  const beat = heartbeat(app, settings.heartbeatSeconds);
  const watch = (socket: WebSocket) => beat(socket as PacedWebSocket);
  for (const prefix of PREFIXES) {
    await app.register(
      async door => {
        door.setErrorHandler((error, request, reply) => replyError(error, request, reply, desk));
        addPlay(door, { play, desk }, seats, dispatcher.services.peers);
        addDescriptions(door, dispatcher);
        const preValidation = async (request: FastifyRequest) => {
          dispatcher.services.catalogue.variant(envIdOf(request));
        };
        door.get('/ws', { websocket: true, preValidation }, (socket, request) => {
          watch(socket);
          const { session_id: id } = request.query as { session_id?: string };
          new OpenEnvSocket(socket, request, services, envIdOf(request), id);
        });
        addMcpRoutes(door, services, envIdOf, { watch, preValidation });
      },
      { prefix },
    );
  }
}

function addPlay(
  door: FastifyInstance,
  { play, desk }: Pick<SocketServices, 'play' | 'desk'>,
  seats: Seats,
  peers: Peers | undefined,
): void {
  const where = peers ? { preHandler: toSeatKeeper(peers, callerOf) } : {};
  door.post('/reset', where, async (request, reply) => {
    const caller = callerOf(request);
    const shown = await within(['body'], false, () => seats.reset(caller, readReset(request.body ?? {})));
    return sendShown(reply, caller, shown);
  });
  door.post('/step', where, async (request, reply) => {
    const caller = callerOf(request);
    const asked = await within(['body'], false, () => readStep(request.body));
    const seat = await seats.get(caller);
    const { metadata, ...shown } = await within(['body', 'action'], seat.form.wrapped, () =>
      isToolAction(seat, asked.action)
        ? toolAction(play, desk, caller.principal, seat, asked.action)
        : play.step(caller.principal, seat, asked.action, asked.timeoutMs),
    );
    const { requestId } = asked;
    const more: JsonObject = requestId === undefined ? {} : { request_id: requestId };
    return sendShown(reply, caller, { ...shown, metadata: { ...metadata, ...more } });
  });
  door.get('/state', where, async (request, reply) => {
    const caller = callerOf(request);
    if (caller.name === '') return sendJsonText(reply, NOTHING_BEGUN);
    const state = await play.state(caller.principal, await seats.get(caller));
    return sendJsonText(reply, JSON.stringify(state));
  });
}

function addDescriptions(door: FastifyInstance, dispatcher: Dispatcher): void {
  const describe = async (request: FastifyRequest) => {
    const envId = envIdOf(request);
    const document = await operate<EnvironmentDocument>(dispatcher, request.principal, 'get_environment', {
      env_id: envId,
    });
    return { document, form: actionForm(dispatcher.services.catalogue.variant(envId)) };
  };
  door.get('/metadata', async (request, reply) => {
    const { document } = await describe(request);
    return sendJsonText(reply, JSON.stringify(metadataOf(document)));
  });
  door.get('/schema', async (request, reply) => {
    const { form } = await describe(request);
    return sendJsonText(reply, JSON.stringify(schemasOf(form)));
  });
  door.get('/openapi.json', async (request, reply) => {
    const { document, form } = await describe(request);
    const path = request.url.slice(0, request.url.lastIndexOf('/'));
    return sendJsonText(reply, JSON.stringify(openApiOf(document, form, path)));
  });
  door.get('/health', (request, reply) => {
    dispatcher.services.catalogue.variant(envIdOf(request));
    const { draining } = dispatcher.services.sessions;
    if (draining) reply.code(HTTP_UNAVAILABLE);
    return sendJsonText(reply, JSON.stringify({ status: draining ? 'unhealthy' : 'healthy' }));
  });
}

function envIdOf(request: FastifyRequest): string {
  const { namespace, name } = request.params as { namespace?: string; name: string };
  return namespace === undefined ? name : `${namespace}/${name}`;
}

function callerOf(request: FastifyRequest): HttpCaller {
  const header = request.headers[SESSION_HEADER];
  const chosen = typeof header === 'string' && header !== '';
  const name = chosen ? header : sessionOfCookie(request);
  if (name.length > LONGEST_NAME) {
    const msg = `String should have at most ${LONGEST_NAME} characters`;
    throw new InvalidMessage([
      { type: 'string_too_long', loc: [chosen ? 'header' : 'cookie', SESSION_HEADER], msg },
    ]);
  }
  return { principal: request.principal, envId: envIdOf(request), name, chosen };
}

/** The session is named in the reply as the client named it, or by its id and in a cookie. */
function sendShown(reply: FastifyReply, { name, chosen }: HttpCaller, shown: Shown): FastifyReply {
  const id = String(shown.metadata.session_id);
  if (!chosen) setSessionCookie(reply, id);
  reply.header(SESSION_HEADER, chosen ? name : id);
  return sendJsonText(reply, shownText(shown));
}

/** 422 in the form of FastAPI, JSON-RPC's own errors, and problem documents for the rest. */
function replyError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  desk: ProblemDesk,
): FastifyReply {
  if (error instanceof InvalidMessage) {
    desk.document(countable(error));
    return sendJsonText(reply.code(HTTP_INVALID), JSON.stringify({ detail: error.faults }));
  }
  const { code, message } = problemOf(error);
  if (code === 'bad_json' && request.routeOptions.url?.endsWith('/mcp')) {
    desk.document(error);
    const failure = new RpcError('parseError', `Parse error: ${message}`);
    return sendJsonText(reply, JSON.stringify(rpcFailure(null, failure)));
  }
  return desk.reply(error, request, reply);
}
