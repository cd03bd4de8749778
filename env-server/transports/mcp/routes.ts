import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { VERSION } from '../../../shared/program.ts';
import { problemOf } from '../../operations/problems.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { type AddressedSession, ENVIRONMENT_PATHS, envIdOf } from '../addressing.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { RpcError, rpcErrorOf } from './json-rpc.ts';
import {
  answerDelete,
  answerPost,
  type McpHost,
  messageLimit,
  refuseStream,
  sendRpcError,
} from './streamable-http.ts';
import { McpPlay, toolsOf } from './tools.ts';

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
