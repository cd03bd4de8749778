import type { IncomingHttpHeaders } from 'node:http';
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { CallToolResult, JSONRPCMessage, Server, Tool } from '@modelcontextprotocol/server';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isObject, type JsonObject } from '../../../shared/json.ts';
import { VERSION } from '../../../shared/program.ts';
import { lazy } from '../../../shared/remembered.ts';
import { DEEPEST_JSON, faultOf, type JsonLimits } from '../../custom/json-limits.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import { Problem } from '../../problems.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { type AddressedSession, ENVIRONMENT_PATHS, envIdOf } from '../addressing.ts';
import { sendJson, sendJsonText } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { isGone, isUnanswered, RpcError, rpcErrorOf, rpcFailure, rpcId } from './json-rpc.ts';
import { type McpEndpoint, McpPlay, toolsOf } from './tools.ts';

/**
 * Loads the SDK for the first MCP client, in parts below 50 ms of processor time with other requests between them: its
 * schema library first, its initialization last.
 */
const loadSdk = lazy(async () => {
  await import('zod/v4/core');
  await nextTurn();
  await import('zod/v4');
  await nextTurn();
  const sdk = await import('@modelcontextprotocol/server');
  await nextTurn();
  return sdk;
});

/** Reply to a request; its text is JSON, or empty. */
interface McpAnswer {
  readonly status: number;
  readonly text: string;
}

/**
 * Answers one POST with the official SDK: revisions that begin with `initialize` (2024-10-07 to 2025-11-25) and
 * 2026-07-28, in which each request is independent. The answer is one JSON document, never an event stream.
 */
async function exchange<Session>(
  host: McpHost<Session>,
  post: FastifyRequest,
  session: Session | undefined,
): Promise<McpAnswer> {
  const endpoint = await host.endpoint(post, session);
  const sdk = await loadSdk();
  const body = withoutCancels(post.body);
  const request = new Request('http://localhost/mcp', { method: 'POST', headers: ownHeaders(post.headers) });
  const server = serverOf(sdk, endpoint, error => host.errorOf(error));
  try {
    const legacy = await sdk.isLegacyRequest(request, body);
    const response = await (legacy
      ? answerSessionful(sdk, server, request, body)
      : sdk
          .createMcpHandler(() => server, {
            legacy: 'reject',
            maxSubscriptions: 0,
            keepAliveMs: 0,
          })
          .fetch(request, { parsedBody: body }));
    return { status: response.status, text: await response.text() };
  } finally {
    await server.close();
  }
}

/**
 * A batch without its cancellations. Each POST has a separate server, so a cancellation can only mean calls of this
 * batch; the SDK would never answer those, nor the batch. A batch of cancellations alone gets no answer.
 */
function withoutCancels(body: unknown): unknown {
  if (!Array.isArray(body)) return body;
  const others = body.filter(message => !isCancel(message));
  return others.length > 0 ? others : body;
}

function isCancel(message: unknown): boolean {
  return isObject(message) && message.method === 'notifications/cancelled' && isUnanswered(message);
}

type Sdk = typeof import('@modelcontextprotocol/server');

async function answerSessionful(
  sdk: Sdk,
  server: Server,
  request: Request,
  body: unknown,
): Promise<Response> {
  // The environment server holds the session, so every process can answer for it and the SDK keeps nothing.
  const transport = new sdk.WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: undefined,
    enableJsonResponse: true,
    keepAliveMs: 0,
  });
  await server.connect(transport);
  return transport.handleRequest(request, { parsedBody: body as JSONRPCMessage });
}

/** A server for one request. Tools come from outside, so nothing is registered or compiled. */
function serverOf(sdk: Sdk, endpoint: McpEndpoint, errorOf: (error: unknown) => RpcError): Server {
  const { serverInfo, instructions } = endpoint;
  const server = new sdk.Server(serverInfo, {
    capabilities: { tools: { listChanged: false } },
    instructions,
  });
  const rethrow = (error: unknown): never => {
    const { code, message, data } = errorOf(error);
    throw new sdk.ProtocolError(code, message, data);
  };
  server.setRequestHandler('tools/list', async () => {
    try {
      return { tools: (await endpoint.tools()) as unknown as Tool[] };
    } catch (error) {
      return rethrow(error);
    }
  });
  server.setRequestHandler('tools/call', async ({ params }) => {
    try {
      const { name, arguments: given = {} } = params;
      return (await endpoint.call(name, given as JsonObject)) as unknown as CallToolResult;
    } catch (error) {
      return rethrow(error);
    }
  });
  return server;
}

/** Every answer is JSON, so clients need not list accepted types. */
const ACCEPT = 'application/json, text/event-stream';

/** The headers that the protocol knows. */
function ownHeaders(headers: IncomingHttpHeaders): [string, string][] {
  const own = Object.entries(headers).filter(
    (entry): entry is [string, string] =>
      typeof entry[1] === 'string' && (entry[0] === 'content-type' || entry[0].startsWith('mcp-')),
  );
  return [...own, ['accept', ACCEPT]];
}

/** Header with a client's session id (revisions before 2026-07-28). */
export const MCP_SESSION_HEADER = 'mcp-session-id';

/** Most messages in one JSON-RPC batch (a feature of revisions before 2025-06-18). */
const MAX_BATCH_SIZE = 100;

const HTTP_OK = 200;
const HTTP_NO_CONTENT = 204;
const HTTP_BAD_REQUEST = 400;
const HTTP_NOT_FOUND = 404;

/** Host of the streamable HTTP transport. An MCP session is a session of the environment server. */
export interface McpHost<Session> {
  /**
   * Opens the session for a client's `initialize`.
   * @throws Problem
   */
  open(request: FastifyRequest): MaybePromise<Session>;
  /** @throws Problem */
  attach(request: FastifyRequest, sessionId: string): MaybePromise<Session>;
  /** @throws Problem */
  close(request: FastifyRequest, session: Session): MaybePromise<unknown>;
  idOf(session: Session): string;
  /** @throws Problem */
  endpoint(request: FastifyRequest, session: Session | undefined): MaybePromise<McpEndpoint>;
  /** Converts any error to a JSON-RPC error, counted and logged. */
  errorOf(error: unknown): RpcError;
}

/** Most bytes of a message or batch. */
const MAX_MESSAGE_BYTES = 1024 * 1024;
/**
 * Most keys of a message or batch: the SDK checks keys one by one, which takes seconds for hundreds of thousands, and
 * no tool call needs that many.
 */
const MESSAGE_LIMITS: JsonLimits = { depth: DEEPEST_JSON, bytes: MAX_MESSAGE_BYTES, keys: 2000 };

/** Body limit of a route for messages: the server's own limit where that is smaller. */
export function messageLimit({ initialConfig }: FastifyInstance): { bodyLimit: number } {
  return { bodyLimit: Math.min(initialConfig.bodyLimit ?? MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES) };
}

/** The size fault of a message or batch. */
export function faultOfMessage(body: unknown): string | undefined {
  if (Array.isArray(body) && (body.length === 0 || body.length > MAX_BATCH_SIZE)) {
    return `a batch has 1 to ${MAX_BATCH_SIZE} messages, not ${body.length}`;
  }
  const fault = body === undefined ? undefined : faultOf(body, MESSAGE_LIMITS);
  return fault && `${fault.pointer === '' ? 'the message' : fault.pointer} ${fault.message}`;
}

/**
 * A session named in the query belongs to the client that opened it: it is played, and never closed with the
 * connection.
 */
const pinnedOf = ({ query }: FastifyRequest): string | undefined => {
  const { session_id: id } = query as { session_id?: unknown };
  return typeof id === 'string' ? id : undefined;
};

/** Answers POST: one JSON-RPC message, or a batch. */
export async function answerPost<Session>(
  host: McpHost<Session>,
  problemHandler: ProblemHandler,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const { body, headers } = request;
  const fault = faultOfMessage(body);
  if (fault !== undefined) {
    problemHandler.document(new Problem('invalid_request', fault));
    return sendRpcError(
      reply,
      HTTP_BAD_REQUEST,
      body,
      new RpcError('invalidRequest', `Invalid request: ${fault}`),
    );
  }
  const named = headers[MCP_SESSION_HEADER];
  const sessionId = pinnedOf(request) ?? (typeof named === 'string' ? named : undefined);
  try {
    if (sessionId === undefined && isObject(body) && body.method === 'initialize') {
      return await greet(host, request, reply);
    }
    const session = sessionId === undefined ? undefined : await host.attach(request, sessionId);
    return send(reply, await exchange(host, request, session));
  } catch (error) {
    const { status } = problemHandler.prepare(error, request, reply);
    const gone = sessionId !== undefined && isGone(error);
    return sendRpcError(reply, gone ? HTTP_NOT_FOUND : status, body, rpcErrorOf(error));
  }
}

/** Answers `initialize`, which opens a session; if the SDK rejects the message, the session is closed again. */
async function greet<Session>(
  host: McpHost<Session>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const session = await host.open(request);
  let isGreeted = false;
  try {
    const answer = await exchange(host, request, session);
    isGreeted = answer.status === HTTP_OK && !('error' in JSON.parse(answer.text));
    if (isGreeted) reply.header(MCP_SESSION_HEADER, host.idOf(session));
    return send(reply, answer);
  } finally {
    if (!isGreeted) await host.close(request, session);
  }
}

function send(reply: FastifyReply, { status, text }: McpAnswer): FastifyReply {
  reply.code(status);
  return text === '' ? reply.send() : sendJsonText(reply, text);
}

/** Answers DELETE, by which a client ends the session of its `initialize`. */
export async function answerDelete<Session>(
  host: McpHost<Session>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const id = request.headers[MCP_SESSION_HEADER];
  if (typeof id !== 'string') {
    throw new Problem('bad_request', `the header ${MCP_SESSION_HEADER} must name the session to end`);
  }
  await host.close(request, await host.attach(request, id));
  return reply.code(HTTP_NO_CONTENT).send();
}

/** Answers GET, which asks for an event stream; there is none, because every answer is one document. */
export function refuseStream(request: FastifyRequest, reply: FastifyReply): never {
  reply.header('allow', 'POST, DELETE');
  throw new Problem(
    'method_not_allowed',
    `${request.routeOptions.url} has no stream of events: it takes POST and DELETE`,
  );
}

function sendRpcError(reply: FastifyReply, status: number, body: unknown, error: RpcError): FastifyReply {
  return sendJson(reply.code(status), rpcFailure(rpcId(body), error));
}

/** `/mcp/{env_id}`: every environment as an MCP server. */
export async function addMcpRoutes(
  app: FastifyInstance,
  dispatcher: Dispatcher,
  problemHandler: ProblemHandler,
): Promise<void> {
  const host = environmentHost(dispatcher, problemHandler);
  await app.register(async scope => {
    scope.setErrorHandler((error, request, reply) => replyError(error, request, reply, problemHandler));
    for (const environment of ENVIRONMENT_PATHS) {
      const path = `/mcp${environment}`;
      scope.post(path, messageLimit(scope), (request, reply) =>
        answerPost(host, problemHandler, request, reply),
      );
      scope.delete(path, (request, reply) => answerDelete(host, request, reply));
      scope.get(path, refuseStream);
    }
  });
}

/** The environments of this server. */
function environmentHost(dispatcher: Dispatcher, problemHandler: ProblemHandler): McpHost<AddressedSession> {
  const playOf = (request: FastifyRequest) =>
    new McpPlay(dispatcher, problemHandler, request.principal, envIdOf(request));
  return {
    open: async request => (await playOf(request).open()).session,
    attach: (request, id) => playOf(request).attach(id),
    close: (request, { id }) => playOf(request).close(id),
    idOf: ({ id }) => id,
    endpoint(request, session) {
      const play = playOf(request);
      const variant = session?.variant ?? play.variant();
      const { environment, config } = variant;
      const { id, title } = environment.spec;
      const addressing = session ? 'connection' : 'argument';
      return {
        serverInfo: { name: `ragen/${id}`, title, version: VERSION },
        instructions: `${environment.describe(config).instruction}\n\nCall reset first.`,
        tools: () => [...toolsOf(variant, addressing).values()].map(({ document }) => document),
        call: (name, given) => play.call(session, name, given),
      };
    },
    errorOf(error) {
      if (!(error instanceof RpcError)) problemHandler.document(error);
      return rpcErrorOf(error);
    },
  };
}

/** Malformed JSON becomes a JSON-RPC error; other failures are problem documents. */
function replyError(
  error: unknown,
  request: FastifyRequest,
  reply: FastifyReply,
  problemHandler: ProblemHandler,
): FastifyReply {
  const { code, message } = problemOf(error);
  if (code !== 'bad_json') return problemHandler.reply(error, request, reply);
  const { status } = problemHandler.prepare(error, request, reply);
  return sendRpcError(reply, status, null, new RpcError('parseError', `Parse error: ${message}`));
}
