import type { FastifyReply, FastifyRequest } from 'fastify';
import { isObject } from '../../custom/answer.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { sendJsonText } from '../replies/send.ts';
import type { McpEndpoint } from './endpoint.ts';
import { exchange, MOST_IN_BATCH } from './exchange.ts';
import { RpcError, rpcFailure, rpcId } from './json-rpc.ts';
import { isGone, rpcErrorOf } from './rpc-errors.ts';

/** Header that names the session of a client (revisions before 2026-07-28). */
export const MCP_SESSION_HEADER = 'mcp-session-id';

const HTTP_OK = 200;
const HTTP_NO_CONTENT = 204;
const HTTP_BAD_REQUEST = 400;
const HTTP_NOT_FOUND = 404;

/** What the streamable HTTP transport serves. A session of MCP is a session of the environment server. */
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

/** A session that the query names belongs to whoever opened it: it is played, and never closed with the client. */
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
  if (Array.isArray(body) && body.length > MOST_IN_BATCH) {
    const message = `Invalid request: a batch has 1 to ${MOST_IN_BATCH} messages, not ${body.length}`;
    return sendRpcError(reply, HTTP_BAD_REQUEST, null, new RpcError('invalidRequest', message));
  }
  const pinned = pinnedOf(request);
  const named = headers[MCP_SESSION_HEADER];
  const sessionId = pinned ?? (typeof named === 'string' ? named : undefined);
  let session: Session | undefined;
  let isNew = false;
  try {
    if (sessionId !== undefined) session = await host.attach(request, sessionId);
    else if (isObject(body) && body.method === 'initialize') {
      session = await host.open(request);
      isNew = true;
    }
  } catch (error) {
    const { status } = problemHandler.prepare(error, request, reply);
    const gone = sessionId !== undefined && isGone(error);
    return sendRpcError(reply, gone ? HTTP_NOT_FOUND : status, body, rpcErrorOf(error));
  }
  try {
    const endpoint = await host.endpoint(request, session);
    const answer = await exchange(endpoint, { headers, body }, error => host.errorOf(error));
    const refused = answer.status !== HTTP_OK;
    if (session !== undefined && isNew && refused) await host.close(request, session);
    else if (session !== undefined && isNew) reply.header(MCP_SESSION_HEADER, host.idOf(session));
    reply.code(answer.status);
    return answer.contentType === undefined ? reply.send() : sendJsonText(reply, answer.text);
  } catch (error) {
    if (session !== undefined && isNew) await host.close(request, session);
    throw error;
  }
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
  return sendJsonText(reply.code(status), JSON.stringify(rpcFailure(rpcId(body), error)));
}
