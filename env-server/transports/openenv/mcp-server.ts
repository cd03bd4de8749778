import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { VERSION } from '../../../shared/program.ts';
import { problemOf } from '../../operations/problems.ts';
import type { EnvironmentDocument } from '../../operations/schemas/fields.ts';
import type { Principal } from '../../sessions/principal.ts';
import {
  isReply,
  isUnanswered,
  RpcError,
  type RpcRequest,
  readRpc,
  rpcErrorOf,
  rpcFailure,
  rpcId,
  rpcSuccess,
} from '../mcp/json-rpc.ts';
import { faultOfMessage } from '../mcp/streamable-http.ts';
import type { McpEndpoint, ToolResult } from '../mcp/tools.ts';
import { parseJson } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { countable, InvalidMessage } from './messages.ts';
import {
  type OpenEnvPlay,
  overResult,
  type PlayedSession,
  TOOL,
  textOf,
  toolResult,
  toolsOf,
} from './play.ts';

/** Revisions of the Model Context Protocol that the WebSocket supports, newest first. */
const SOCKET_VERSIONS: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

/** Client and environment of a request. */
export interface McpCaller {
  readonly principal: Principal;
  readonly envId: string;
  /** The client's session: its socket's, or the one its `initialize` opened. */
  readonly played?: PlayedSession;
  /** True if the session belongs to the socket and ends with it. */
  readonly isSocket?: boolean;
}

/** OpenEnv's JSON-RPC: an environment as a tool, sessions that outlive a request, and WebSocket frames. */
export class McpServer {
  readonly #play: OpenEnvPlay;
  readonly #problemHandler: ProblemHandler;

  constructor(play: OpenEnvPlay, problemHandler: ProblemHandler) {
    this.#play = play;
    this.#problemHandler = problemHandler;
  }

  /** Answers a message or a batch, with errors included; undefined where nothing gets a reply. Never throws. */
  async answer(given: unknown, caller: McpCaller): Promise<JsonObject | JsonObject[] | undefined> {
    const fault = faultOfMessage(given);
    if (fault !== undefined) {
      return rpcFailure(rpcId(given), new RpcError('invalidRequest', `Invalid request: ${fault}`));
    }
    if (!Array.isArray(given)) return this.#answerOne(given, caller);
    const replies: JsonObject[] = [];
    for (const message of given) {
      const reply = await this.#answerOne(message, caller);
      if (reply) replies.push(reply);
    }
    return replies.length > 0 ? replies : undefined;
  }

  /** Answers the text of a frame. */
  async answerText(text: string, caller: McpCaller): Promise<string | undefined> {
    let given: Json;
    try {
      given = parseJson(text) as Json;
    } catch (error) {
      const failure = new RpcError('parseError', `Parse error: ${(error as Error).message}`);
      return JSON.stringify(rpcFailure(null, failure));
    }
    const reply = await this.answer(given, caller);
    return reply && JSON.stringify(reply);
  }

  /** Converts any error to a JSON-RPC error, counted and logged. */
  errorOf(error: unknown): RpcError {
    if (error instanceof RpcError) return error;
    this.#problemHandler.document(countable(error));
    return error instanceof InvalidMessage ? new RpcError('invalidParams', error.message) : rpcErrorOf(error);
  }

  /**
   * Tools and resources for a client.
   * @throws Problem
   */
  async endpoint(caller: McpCaller): Promise<McpEndpoint> {
    const { principal, envId, played } = caller;
    const { title, instruction } = await this.#play.dispatcher.operate<EnvironmentDocument>(
      principal,
      'get_environment',
      { env_id: envId },
    );
    const seen = played && (await this.#play.look(principal, played));
    return {
      serverInfo: { name: `ragen/${envId}`, title, version: VERSION },
      instructions: `${instruction}\n\nAct with the tool ${TOOL}.${seen ? ` You see:\n${textOf(seen.observation)}` : ''}`,
      tools: () => toolsOf(this.#play, principal, envId, played),
      call: (name, given) => this.#call({ name, arguments: given }, caller),
    };
  }

  async #answerOne(given: unknown, caller: McpCaller): Promise<JsonObject | undefined> {
    if (isReply(given)) return undefined;
    const unanswered = isUnanswered(given);
    try {
      const request = readRpc(given);
      const result = await this.#run(request, caller, unanswered);
      return unanswered ? undefined : rpcSuccess(request.id, result);
    } catch (error) {
      const failure = this.errorOf(error);
      return unanswered ? undefined : rpcFailure(rpcId(given), failure);
    }
  }

  async #run(
    { method, params }: RpcRequest,
    caller: McpCaller,
    isNotification: boolean,
  ): Promise<JsonObject> {
    switch (method) {
      case 'ping':
        return {};
      case 'initialize':
        return this.#initialize(params, caller);
      case 'tools/list':
        return { tools: await toolsOf(this.#play, caller.principal, caller.envId, caller.played) };
      case 'tools/call':
        return this.#call(params, caller);
      case 'openenv/session/create':
        return this.#create(caller);
      case 'openenv/session/close':
        return this.#close(params, caller);
      default:
        if (isNotification) return {};
        throw new RpcError('methodNotFound', `Method not found: ${method}`);
    }
  }

  /** Agrees on a version; the session belongs to the socket. */
  async #initialize({ protocolVersion: wanted }: JsonObject, caller: McpCaller): Promise<JsonObject> {
    if (typeof wanted !== 'string') {
      throw new RpcError('invalidParams', "'protocolVersion' must be a string");
    }
    const { serverInfo, instructions } = await this.endpoint(caller);
    return {
      protocolVersion: SOCKET_VERSIONS.includes(wanted) ? wanted : SOCKET_VERSIONS[0],
      capabilities: { tools: { listChanged: false } },
      serverInfo,
      instructions,
    };
  }

  async #call(params: JsonObject, caller: McpCaller): Promise<ToolResult> {
    const { name, arguments: fields = {} } = params;
    if (name === undefined) throw new RpcError('invalidParams', "Missing 'name' in params");
    if (name !== TOOL) {
      throw new RpcError('invalidParams', `Tool not found: ${JSON.stringify(name)}; there is ${TOOL}`);
    }
    if (!isObject(fields)) throw new RpcError('invalidParams', "'arguments' must be an object");
    const { principal, envId } = caller;
    const played = caller.played ?? (await this.#seatOf(params, caller));
    if (played) return this.#act(principal, played, fields);
    const { played: passing } = await this.#play.open(principal, envId);
    try {
      return await this.#act(principal, passing, fields);
    } finally {
      await this.#play.close(principal, passing);
    }
  }

  /** A step after the end of the episode gives a result that the model reads, because the tools have no reset. */
  async #act(principal: Principal, played: PlayedSession, fields: JsonObject): Promise<ToolResult> {
    try {
      return toolResult(await this.#play.step(principal, played, fields));
    } catch (error) {
      const problem = problemOf(error);
      if (problem.code !== 'episode_over') throw error;
      this.#problemHandler.document(problem);
      return overResult(problem, played);
    }
  }

  async #create({ principal, envId, played, isSocket }: McpCaller): Promise<JsonObject> {
    const { sessionId } = isSocket && played ? played : (await this.#play.open(principal, envId)).played;
    return { session_id: sessionId };
  }

  async #close(params: JsonObject, caller: McpCaller): Promise<JsonObject> {
    if (
      caller.isSocket &&
      params.session_id !== undefined &&
      params.session_id === caller.played?.sessionId
    ) {
      throw new RpcError(
        'invalidRequest',
        'Cannot close active WebSocket-managed session via MCP method; close the socket',
      );
    }
    const played = await this.#seatOf(params, caller);
    if (!played) throw new RpcError('invalidParams', "Invalid params - 'session_id' is required");
    await this.#play.close(caller.principal, played);
    return { session_id: played.sessionId, closed: true };
  }

  /** The session that the parameters name, if any. */
  async #seatOf(
    { session_id: id }: JsonObject,
    { principal, envId }: McpCaller,
  ): Promise<PlayedSession | undefined> {
    if (id === undefined) return undefined;
    if (typeof id !== 'string' || id === '') {
      throw new RpcError('invalidParams', "'session_id' must be the id of a session");
    }
    return this.#play.attach(principal, envId, id);
  }
}
