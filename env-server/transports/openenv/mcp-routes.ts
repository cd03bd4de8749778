import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { WebSocket } from 'ws';
import { isObject } from '../../custom/answer.ts';
import { problemOf } from '../../operations/problems.ts';
import { envIdOf } from '../addressing.ts';
import { RpcError, rpcFailure } from '../mcp/json-rpc.ts';
import {
  answerDelete,
  answerPost,
  MCP_SESSION_HEADER,
  type McpHost,
  messageLimit,
  refuseStream,
} from '../mcp/streamable-http.ts';
import { sendJson } from '../replies/send.ts';
import type { PacedWebSocket } from '../websocket/paced-websocket.ts';
import type { McpCaller } from './mcp-server.ts';
import type { PlayedSession } from './play.ts';
import { SessionSocket, type SocketServices } from './session-socket.ts';

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
export function addMcpRoutes(
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
