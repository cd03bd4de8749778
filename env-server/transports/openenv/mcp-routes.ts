import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { problemOf } from '../../operations/dispatch/problem-of.ts';
import { Problem } from '../../problems.ts';
import { sendJsonText } from '../replies/send.ts';
import { RpcError, rpcFailure, rpcId } from './json-rpc.ts';
import { MCP_VERSIONS, type McpCaller } from './mcp-server.ts';
import { McpSocket } from './mcp-socket.ts';
import type { PlayedSession } from './play.ts';
import type { SocketServices } from './session-socket.ts';

/** Headers of the streamable HTTP transport of the Model Context Protocol. */
const SESSION = 'mcp-session-id';
const VERSION = 'mcp-protocol-version';

const HTTP_ACCEPTED = 202;
const HTTP_NO_CONTENT = 204;
const HTTP_BAD_REQUEST = 400;
const HTTP_NOT_FOUND = 404;

interface SocketHooks {
  readonly watch: (socket: WebSocket) => void;
  readonly preValidation: (request: FastifyRequest) => Promise<void>;
}

/** `/mcp`: JSON-RPC by POST, as MCP's streamable HTTP without streams, and frame by frame over a WebSocket. */
export function addMcpRoutes(
  scope: FastifyInstance,
  services: SocketServices,
  envIdOf: (request: FastifyRequest) => string,
  { watch, preValidation }: SocketHooks,
): void {
  const { play, mcp } = services;
  const playedOf = async (request: FastifyRequest): Promise<PlayedSession | undefined> => {
    const id = request.headers[SESSION];
    if (typeof id !== 'string') return undefined;
    return play.attach(request.principal, envIdOf(request), id);
  };

  scope.post('/mcp', async (request, reply) => {
    const { body } = request;
    const version = request.headers[VERSION];
    if (version !== undefined && !MCP_VERSIONS.includes(String(version))) {
      return sendFailure(reply, HTTP_BAD_REQUEST, body, unsupported(String(version)));
    }
    let played: PlayedSession | undefined;
    try {
      played = await playedOf(request);
    } catch (error) {
      const status = isGone(error) ? HTTP_NOT_FOUND : HTTP_BAD_REQUEST;
      return sendFailure(reply, status, body, mcp.errorOf(error));
    }
    const caller: McpCaller = {
      principal: request.principal,
      envId: envIdOf(request),
      ...(played && { played }),
    };
    const { reply: answer, sessionId } = await mcp.answer(body, caller);
    if (sessionId !== undefined) reply.header(SESSION, sessionId);
    if (answer === undefined) return reply.code(HTTP_ACCEPTED).send();
    return sendJsonText(reply, JSON.stringify(answer));
  });

  scope.delete('/mcp', async (request, reply) => {
    const played = await playedOf(request);
    if (!played) throw new Problem('bad_request', `the header ${SESSION} must name the session to end`);
    await play.close(request.principal, played);
    return reply.code(HTTP_NO_CONTENT).send();
  });

  scope.route({
    method: 'GET',
    url: '/mcp',
    preValidation: async (request, reply) => {
      if (request.ws) return preValidation(request);
      reply.header('allow', 'POST, DELETE');
      throw new Problem('method_not_allowed', '/mcp has no stream of events: it takes POST and DELETE');
    },
    handler: (_request, reply) => reply,
    wsHandler: (socket, request) => {
      watch(socket);
      new McpSocket(socket, request, services, envIdOf(request));
    },
  });
}

/** The session is not there any more, upon which a client begins a new one. */
function isGone(error: unknown): boolean {
  const { code } = problemOf(error);
  return code === 'unknown_session' || code === 'session_closed' || code === 'session_expired';
}

/** Clients of newer revisions read from it which ones they may use. */
function unsupported(requested: string): RpcError {
  const data = { supported: [...MCP_VERSIONS], requested };
  return new RpcError('unsupportedVersion', `Unsupported protocol version: ${requested}`, data);
}

function sendFailure(reply: FastifyReply, status: number, body: unknown, error: RpcError): FastifyReply {
  return sendJsonText(reply.code(status), JSON.stringify(rpcFailure(rpcId(body), error)));
}
