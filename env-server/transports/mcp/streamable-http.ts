import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { isObject } from '../../custom/answer.ts';
import { DEEPEST_JSON, faultOf, type JsonLimits } from '../../custom/json-limits.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { sendJson, sendJsonText } from '../replies/send.ts';
import { exchange, type McpAnswer } from './exchange.ts';
import { isGone, RpcError, rpcErrorOf, rpcFailure, rpcId } from './json-rpc.ts';
import type { McpEndpoint } from './results.ts';

/** Header that names the session of a client (revisions before 2026-07-28). */
export const MCP_SESSION_HEADER = 'mcp-session-id';

/** Messages of one JSON-RPC batch, which revisions before 2025-06-18 have. */
const MAX_BATCH_SIZE = 100;

const HTTP_OK = 200;
const HTTP_NO_CONTENT = 204;
const HTTP_BAD_REQUEST = 400;
const HTTP_NOT_FOUND = 404;

/** Host of the streamable HTTP transport. A session of MCP is a session of the environment server. */
export interface McpHost<Session> {
  /**
   * Opens the session of a client that sends `initialize`.
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
  /** Any error as one of JSON-RPC, counted and logged. */
  errorOf(error: unknown): RpcError;
}

/** Bytes of a message or batch. */
const MAX_MESSAGE_BYTES = 1024 * 1024;
/**
 * What a message or batch may hold: the SDK checks it key by key, which takes it seconds for hundreds of thousands of
 * keys, and no call of a tool needs as much.
 */
const MESSAGE_LIMITS: JsonLimits = { depth: DEEPEST_JSON, bytes: MAX_MESSAGE_BYTES, keys: 2000 };

/** The limit of bodies of a route that takes messages: the server's own where that is less. */
export function messageLimit({ initialConfig }: FastifyInstance): { bodyLimit: number } {
  return { bodyLimit: Math.min(initialConfig.bodyLimit ?? MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES) };
}

/** Says what is wrong with the size of a message or batch. */
export function faultOfMessage(body: unknown): string | undefined {
  if (Array.isArray(body) && (body.length === 0 || body.length > MAX_BATCH_SIZE)) {
    return `a batch has 1 to ${MAX_BATCH_SIZE} messages, not ${body.length}`;
  }
  const fault = body === undefined ? undefined : faultOf(body, MESSAGE_LIMITS);
  return fault && `${fault.pointer === '' ? 'the message' : fault.pointer} ${fault.message}`;
}

/** A session that the query names belongs to the client that opened it: it is played, and never closed with the client. */
const pinnedOf = ({ query }: FastifyRequest): string | undefined => {
  const { session_id: id } = query as { session_id?: unknown };
  return typeof id === 'string' ? id : undefined;
};

/** Answers POST: one message of JSON-RPC, or a batch of them. */
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
    return send(reply, await answerWith(host, request, session));
  } catch (error) {
    const { status } = problemHandler.prepare(error, request, reply);
    const gone = sessionId !== undefined && isGone(error);
    return sendRpcError(reply, gone ? HTTP_NOT_FOUND : status, body, rpcErrorOf(error));
  }
}

/** Answers `initialize`, which opens a session; the session is closed again if the greeting is refused. */
async function greet<Session>(
  host: McpHost<Session>,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const session = await host.open(request);
  let isGreeted = false;
  try {
    const answer = await answerWith(host, request, session);
    isGreeted = answer.status === HTTP_OK && !('error' in JSON.parse(answer.text));
    if (isGreeted) reply.header(MCP_SESSION_HEADER, host.idOf(session));
    return send(reply, answer);
  } finally {
    if (!isGreeted) await host.close(request, session);
  }
}

async function answerWith<Session>(
  host: McpHost<Session>,
  request: FastifyRequest,
  session: Session | undefined,
): Promise<McpAnswer> {
  const endpoint = await host.endpoint(request, session);
  return exchange(endpoint, request, error => host.errorOf(error));
}

function send(reply: FastifyReply, { status, contentType, text }: McpAnswer): FastifyReply {
  reply.code(status);
  return contentType === undefined ? reply.send() : sendJsonText(reply, text);
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

/** Answers GET, which asks for a stream of events: there is none, since every answer is one document. */
export function refuseStream(request: FastifyRequest, reply: FastifyReply): never {
  reply.header('allow', 'POST, DELETE');
  throw new Problem(
    'method_not_allowed',
    `${request.routeOptions.url} has no stream of events: it takes POST and DELETE`,
  );
}

export function sendRpcError(
  reply: FastifyReply,
  status: number,
  body: unknown,
  error: RpcError,
): FastifyReply {
  return sendJson(reply.code(status), rpcFailure(rpcId(body), error));
}
