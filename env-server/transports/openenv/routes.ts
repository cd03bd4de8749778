import { parseCookie, stringifySetCookie } from 'cookie';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { type OpenEnvCode, SESSION_HEADER } from '../../custom/remote/openenv-protocol.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import type { EnvironmentDocument } from '../../operations/schemas/fields.ts';
import { Problem } from '../../problems.ts';
import { type SessionLimits, TooManySessions } from '../../sessions/limits/admission.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { ENVIRONMENT_PATHS, envIdOf } from '../addressing.ts';
import { capacityOf, RpcError, rpcFailure } from '../mcp/json-rpc.ts';
import {
  answerDelete,
  answerPost,
  MCP_SESSION_HEADER,
  type McpHost,
  messageLimit,
  refuseStream,
} from '../mcp/streamable-http.ts';
import { sendJson, sendJsonText } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { heartbeat, type PacedWebSocket } from '../websocket/paced-websocket.ts';
import { metadataOf, openApiOf, schemasOf } from './describe.ts';
import { type McpCaller, McpServer } from './mcp-server.ts';
import {
  type ActionForm,
  actionForm,
  countable,
  InvalidMessage,
  type OpenEnvMessage,
  readMessage,
  readReset,
  readStep,
  UnknownType,
  within,
} from './messages.ts';
import {
  type HttpCaller,
  NamedSessions,
  NORMAL,
  SessionSocket,
  type SocketServices,
} from './named-sessions.ts';
import {
  OpenEnvPlay,
  type OpenEnvStepReply,
  type PlayedSession,
  SESSION_LOST,
  stepReplyText,
  takeStep,
} from './play.ts';

interface ErrorData {
  readonly code: OpenEnvCode;
  readonly message: string;
  readonly more?: JsonObject;
}

/** One client of `/ws`: OpenEnv's frames. */
class OpenEnvSocket extends SessionSocket {
  protected answer(text: string, played: PlayedSession): MaybePromise<string | undefined> {
    try {
      const reply = this.#run(readMessage(text), played);
      return reply instanceof Promise ? reply.catch(error => this.#mishap(error)) : reply;
    } catch (error) {
      return this.#mishap(error);
    }
  }

  protected refusal(error: unknown): string {
    this.services.problemHandler.document(error);
    const problem = problemOf(error);
    const { message } = problem;
    if (problem instanceof TooManySessions) {
      return errorFrame({ code: 'CAPACITY_REACHED', message, more: capacityOf(problem) });
    }
    const faulty = problem.status >= 500 && !SESSION_LOST.has(problem.code);
    return errorFrame(
      faulty
        ? { code: 'FACTORY_ERROR', message, more: { factory_name: this.envId } }
        : { code: 'SESSION_ERROR', message },
    );
  }

  protected farewell(message: string): string {
    return errorFrame({ code: 'SESSION_ERROR', message });
  }

  #run(message: OpenEnvMessage, played: PlayedSession): MaybePromise<string | undefined> {
    const { services, principal, envId } = this;
    const { play, mcp } = services;
    switch (message.type) {
      case 'reset':
        return chain(
          within(['data'], played.form.wrapped, () => play.reset(principal, played, readReset(message.data))),
          observationFrame,
        );
      case 'step':
        return chain(
          within(['data'], played.form.wrapped, () => takeStep(services, principal, played, message.data)),
          observationFrame,
        );
      case 'state':
        return chain(play.state(principal, played), data => frame('state', data));
      case 'mcp':
        return mcp
          .answer(message.data, { principal, envId, played, isSocket: true })
          .then(reply => reply && frame('mcp', reply as JsonObject));
      case 'close':
        this.leave();
        this.socket.close(NORMAL);
        return undefined;
    }
  }

  #mishap(error: unknown): string | undefined {
    const { problemHandler } = this.services;
    if (error instanceof UnknownType) {
      problemHandler.document(new Problem('invalid_request', error.message));
      return errorFrame({ code: 'UNKNOWN_TYPE', message: error.message });
    }
    problemHandler.document(countable(error));
    if (error instanceof InvalidMessage) {
      const message = `Invalid message: ${error.message}`;
      return errorFrame({ code: 'VALIDATION_ERROR', message, more: { errors: error.faults } });
    }
    const { code, message } = problemOf(error);
    if (code === 'bad_json') return errorFrame({ code: 'INVALID_JSON', message: `Invalid JSON: ${message}` });
    if (!SESSION_LOST.has(code)) return errorFrame({ code: 'EXECUTION_ERROR', message });
    this.lose(message);
    return undefined;
  }
}

const frame = (type: string, data: JsonObject): string => JSON.stringify({ type, data });

const observationFrame = (stepReply: OpenEnvStepReply): string =>
  `{"type":"observation","data":${stepReplyText(stepReply)}}`;

const errorFrame = ({ message, code, more }: ErrorData): string => frame('error', { message, code, ...more });

const HTTP_INVALID = 422;
const HTTP_UNAVAILABLE = 503;
/** Cookie with the session of a client that names none. */
const COOKIE = 'openenv_session';
/** The state for a client without a session. */
const NOTHING_BEGUN = { episode_id: null, step_count: 0 };
/** Longest session name, in characters. */
const MAX_NAME_LENGTH = 128;

export interface OpenEnvSettings extends Pick<SessionLimits, 'maxSessions'> {
  readonly heartbeatSeconds: number;
}

/** `/compat/openenv/{env_id}/…`: every environment as an OpenEnv server. */
export async function addOpenEnvRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
  settings: OpenEnvSettings,
): Promise<void> {
  const play = new OpenEnvPlay(dispatcher);
  const mcp = new McpServer(play, problemHandler);
  const namedSessions = new NamedSessions(play, settings.maxSessions);
  const { sessions } = dispatcher.services;
  const services = { play, mcp, problemHandler, deliver: (reply: () => void) => sessions.deliver(reply) };
  const beat = heartbeat(app, settings.heartbeatSeconds);
  const watch = (given: WebSocket) => {
    const socket = given as PacedWebSocket;
    beat(socket);
    return socket;
  };
  for (const environment of ENVIRONMENT_PATHS) {
    await app.register(
      async scope => {
        scope.setErrorHandler((error, request, reply) => replyError(error, request, reply, problemHandler));
        addPlay(scope, services, namedSessions);
        addDescriptions(scope, dispatcher);
        const preValidation = async (request: FastifyRequest) => {
          dispatcher.services.catalog.variant(envIdOf(request));
        };
        scope.get('/ws', { websocket: true, preValidation }, (socket, request) => {
          const { session_id: id } = request.query as { session_id?: string };
          new OpenEnvSocket(watch(socket), request, services, envIdOf(request), id);
        });
        addMcpRoutes(scope, services, { watch, preValidation });
      },
      { prefix: `/compat/openenv${environment}` },
    );
  }
}

function addPlay(
  scope: FastifyInstance,
  services: Pick<SocketServices, 'play' | 'problemHandler'>,
  namedSessions: NamedSessions,
): void {
  const { play } = services;
  scope.post('/reset', async (request, reply) => {
    const caller = callerOf(request);
    const stepReply = await within(['body'], false, () =>
      namedSessions.reset(caller, readReset(request.body ?? {})),
    );
    return sendStepReply(reply, caller, stepReply);
  });
  scope.post('/step', async (request, reply) => {
    const caller = callerOf(request);
    const asked = await within(['body'], false, () => readStep(request.body));
    const played = await namedSessions.get(caller);
    const { metadata, ...stepReply } = await within(['body', 'action'], played.form.wrapped, () =>
      takeStep(services, caller.principal, played, asked.action, asked.timeoutMs),
    );
    const { requestId } = asked;
    const more: JsonObject = requestId === undefined ? {} : { request_id: requestId };
    return sendStepReply(reply, caller, { ...stepReply, metadata: { ...metadata, ...more } });
  });
  scope.get('/state', async (request, reply) => {
    const caller = callerOf(request);
    if (caller.name === '') return sendJson(reply, NOTHING_BEGUN);
    const state = await play.state(caller.principal, await namedSessions.get(caller));
    return sendJson(reply, state);
  });
}

function addDescriptions(scope: FastifyInstance, dispatcher: Dispatcher): void {
  const { catalog } = dispatcher.services;
  const add = (
    url: string,
    write: (document: EnvironmentDocument, form: ActionForm, request: FastifyRequest) => JsonObject,
  ) =>
    scope.get(url, async (request, reply) => {
      const envId = envIdOf(request);
      const about = { env_id: envId };
      const found = dispatcher.operate<EnvironmentDocument>(request.principal, 'get_environment', about);
      return sendJson(reply, write(await found, actionForm(catalog.variant(envId)), request));
    });
  add('/metadata', metadataOf);
  add('/schema', (_document, form) => schemasOf(form));
  add('/openapi.json', (document, form, { url }) =>
    openApiOf(document, form, url.slice(0, url.lastIndexOf('/'))),
  );
  scope.get('/health', (request, reply) => {
    dispatcher.services.catalog.variant(envIdOf(request));
    const { draining } = dispatcher.services.sessions.shutdown;
    if (draining) reply.code(HTTP_UNAVAILABLE);
    return sendJson(reply, { status: draining ? 'unhealthy' : 'healthy' });
  });
}

function callerOf(request: FastifyRequest): HttpCaller {
  const header = request.headers[SESSION_HEADER];
  const chosen = typeof header === 'string' && header !== '';
  const name = chosen ? header : sessionOfCookie(request);
  if (name.length > MAX_NAME_LENGTH) {
    const msg = `String should have at most ${MAX_NAME_LENGTH} characters`;
    throw new InvalidMessage([
      { type: 'string_too_long', loc: [chosen ? 'header' : 'cookie', SESSION_HEADER], msg },
    ]);
  }
  return { principal: request.principal, envId: envIdOf(request), name, chosen };
}

/** The reply names the session by the client's name, or by its id with a cookie. */
function sendStepReply(
  reply: FastifyReply,
  { name, chosen }: HttpCaller,
  stepReply: OpenEnvStepReply,
): FastifyReply {
  const id = String(stepReply.metadata.session_id);
  if (!chosen) setSessionCookie(reply, id);
  reply.header(SESSION_HEADER, chosen ? name : id);
  return sendJsonText(reply, stepReplyText(stepReply));
}

/** The session in a client's cookie; empty without one. */
function sessionOfCookie({ headers }: FastifyRequest): string {
  return parseCookie(headers.cookie ?? '')[COOKIE] ?? '';
}

/** Sets a cookie with the client's session, which the browser returns to the same environment only. */
function setSessionCookie(reply: FastifyReply, sessionId: string): void {
  const { url } = reply.request;
  const [path] = url.split('?', 1);
  reply.header(
    'set-cookie',
    stringifySetCookie({
      name: COOKIE,
      value: sessionId,
      path: path.slice(0, path.lastIndexOf('/')),
      httpOnly: true,
      sameSite: 'strict',
    }),
  );
}

/** 422 in FastAPI's form, JSON-RPC errors, and problem documents for everything else. */
function replyError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  problemHandler: ProblemHandler,
): FastifyReply {
  if (error instanceof InvalidMessage) {
    problemHandler.document(countable(error));
    return sendJson(reply.code(HTTP_INVALID), { detail: error.faults });
  }
  const { code, message } = problemOf(error);
  if (code === 'bad_json' && request.routeOptions.url?.endsWith('/mcp')) {
    problemHandler.document(error);
    const failure = new RpcError('parseError', `Parse error: ${message}`);
    return sendJson(reply, rpcFailure(null, failure));
  }
  return problemHandler.reply(error, request, reply);
}

const HTTP_ACCEPTED = 202;
/** Key of the version in `params._meta` of a request of revision 2026-07-28. */
const VERSION_CLAIM = 'io.modelcontextprotocol/protocolVersion';

interface SocketHooks {
  readonly watch: (socket: WebSocket) => PacedWebSocket;
  readonly preValidation: (request: FastifyRequest) => Promise<void>;
}

/** One client of `/mcp` over a WebSocket: each frame is a JSON-RPC message or a batch. */
class McpSocket extends SessionSocket {
  protected answer(text: string, played: PlayedSession): Promise<string | undefined> {
    const { principal, envId, services } = this;
    return services.mcp.answerText(text, { principal, envId, played, isSocket: true });
  }

  protected refusal(error: unknown): string {
    const { message, data } = this.services.mcp.errorOf(error);
    return failure(message, data ?? { code: problemOf(error).code });
  }

  protected farewell(message: string): string {
    return failure(message);
  }
}

const failure = (message: string, data?: RpcError['data']): string =>
  JSON.stringify(rpcFailure(null, new RpcError('serverError', message, data)));

/** `/mcp`: OpenEnv's JSON-RPC by POST and over a WebSocket, and MCP's streamable HTTP. */
function addMcpRoutes(
  scope: FastifyInstance,
  services: SocketServices,
  { watch, preValidation }: SocketHooks,
): void {
  const { play, mcp, problemHandler } = services;
  const callerOf = (request: FastifyRequest): McpCaller => ({
    principal: request.principal,
    envId: envIdOf(request),
  });
  const host: McpHost<PlayedSession> = {
    open: async request => (await play.open(request.principal, envIdOf(request))).played,
    attach: (request, id) => play.attach(request.principal, envIdOf(request), id),
    close: (request, played) => play.close(request.principal, played),
    idOf: ({ sessionId }) => sessionId,
    endpoint: (request, played) => mcp.endpoint({ ...callerOf(request), ...(played && { played }) }),
    errorOf: error => mcp.errorOf(error),
  };

  scope.post('/mcp', messageLimit(scope), async (request, reply) => {
    if (speaksMcp(request)) return answerPost(host, problemHandler, request, reply);
    const answer = await mcp.answer(request.body, callerOf(request));
    if (answer === undefined) return reply.code(HTTP_ACCEPTED).send();
    return sendJson(reply, answer);
  });

  scope.delete('/mcp', (request, reply) => answerDelete(host, request, reply));

  scope.route({
    method: 'GET',
    url: '/mcp',
    preValidation: async (request, reply) => {
      if (request.ws) return preValidation(request);
      return refuseStream(request, reply);
    },
    handler: (_request, reply) => reply,
    wsHandler: (socket, request) => {
      new McpSocket(watch(socket), request, services, envIdOf(request));
    },
  });
}

/** True if a message comes from an MCP client; OpenEnv's own clients send JSON-RPC without `initialize`. */
function speaksMcp({ headers, body }: FastifyRequest): boolean {
  if (headers[MCP_SESSION_HEADER] !== undefined || headers['mcp-protocol-version'] !== undefined) return true;
  if (!isObject(body)) return false;
  const { method, params } = body;
  if (method === 'initialize') return true;
  return isObject(params) && isObject(params._meta) && VERSION_CLAIM in params._meta;
}
