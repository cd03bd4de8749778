import type { Json, JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import { problemOf } from '../../operations/dispatch/problem-of.ts';
import type { EnvironmentDocument } from '../../operations/schemas.ts';
import type { Problem } from '../../problems.ts';
import { TooManySessions } from '../../sessions/admission.ts';
import type { Principal } from '../../sessions/principal.ts';
import { operate } from '../operate.ts';
import { parseJson } from '../replies/json.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { API_VERSION } from '../rest/openapi.ts';
import { capacityOf } from './capacity.ts';
import { countable, InvalidMessage } from './faults.ts';
import {
  isReply,
  isUnanswered,
  RpcError,
  type RpcRequest,
  readRpc,
  rpcFailure,
  rpcId,
  rpcSuccess,
} from './json-rpc.ts';
import type { OpenEnvPlay, PlayedSession } from './play.ts';
import { TOOL, textOf, toolResult, toolsOf } from './tools.ts';

/** Revisions of the Model Context Protocol that begin with `initialize`, the newest first. */
export const MCP_VERSIONS: readonly string[] = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

/** Messages of one JSON-RPC batch. */
const MAX_BATCH_SIZE = 100;

/** Where a request comes from. */
export interface McpCaller {
  readonly principal: Principal;
  readonly envId: string;
  /** The session that the client plays: that of its socket, or the one its `initialize` opened. */
  readonly played?: PlayedSession;
  /** The session is the socket's and ends with it. */
  readonly isSocket?: boolean;
}

/** What a message or a batch of them leads to. */
export interface McpOutcome {
  /** Absent for notifications, which get none. */
  readonly reply?: JsonObject | JsonObject[];
  /** The session that an `initialize` opened. */
  readonly sessionId?: string;
}

const NO_REPLY: McpOutcome = {};

/** MCP and OpenEnv's additions to it: an environment as a tool, and sessions that outlive a request. */
export class McpServer {
  readonly #play: OpenEnvPlay;
  readonly #problemHandler: ProblemHandler;

  constructor(play: OpenEnvPlay, problemHandler: ProblemHandler) {
    this.#play = play;
    this.#problemHandler = problemHandler;
  }

  /** Answers a message or a batch of them, with errors where it must; never throws. */
  async answer(given: unknown, caller: McpCaller): Promise<McpOutcome> {
    if (!Array.isArray(given)) return this.#answerOne(given, caller);
    if (given.length === 0 || given.length > MAX_BATCH_SIZE) {
      const message = `Invalid request: a batch has 1 to ${MAX_BATCH_SIZE} messages, not ${given.length}`;
      return { reply: rpcFailure(null, new RpcError('invalidRequest', message)) };
    }
    const replies: JsonObject[] = [];
    let sessionId: string | undefined;
    for (const message of given) {
      const outcome = await this.#answerOne(message, caller);
      if (outcome.reply) replies.push(outcome.reply as JsonObject);
      sessionId ??= outcome.sessionId;
    }
    return { ...(replies.length > 0 && { reply: replies }), ...(sessionId !== undefined && { sessionId }) };
  }

  /** The text of a frame, answered. */
  async answerText(text: string, caller: McpCaller): Promise<string | undefined> {
    let given: Json;
    try {
      given = parseJson(text) as Json;
    } catch (error) {
      const failure = new RpcError('parseError', `Parse error: ${(error as Error).message}`);
      return JSON.stringify(rpcFailure(null, failure));
    }
    const { reply } = await this.answer(given, caller);
    return reply && JSON.stringify(reply);
  }

  /** Whatever was thrown, as an error of JSON-RPC; counted and logged. */
  errorOf(error: unknown): RpcError {
    if (error instanceof RpcError) return error;
    this.#problemHandler.document(countable(error));
    if (error instanceof InvalidMessage) return new RpcError('invalidParams', error.message);
    const problem = problemOf(error);
    if (isAboutParams(problem)) return new RpcError('invalidParams', problem.message);
    if (problem instanceof TooManySessions) {
      return new RpcError('serverError', problem.message, capacityOf(problem));
    }
    return new RpcError('internalError', problem.message);
  }

  async #answerOne(given: unknown, caller: McpCaller): Promise<McpOutcome> {
    if (isReply(given)) return NO_REPLY;
    const unanswered = isUnanswered(given);
    try {
      const request = readRpc(given);
      if (request.method === 'initialize' && !unanswered) {
        const { result, sessionId } = await this.#initialize(request.params, caller);
        return { reply: rpcSuccess(request.id, result), ...(sessionId !== undefined && { sessionId }) };
      }
      const result = await this.#run(request, caller, unanswered);
      return unanswered ? NO_REPLY : { reply: rpcSuccess(request.id, result) };
    } catch (error) {
      const failure = this.errorOf(error);
      return unanswered ? NO_REPLY : { reply: rpcFailure(rpcId(given), failure) };
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
      case 'tools/list':
        return this.#list(caller);
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

  /** Agrees on a version and opens the session that the client plays, unless its socket has one. */
  async #initialize(
    { protocolVersion: wanted }: JsonObject,
    { principal, envId, played, isSocket = false }: McpCaller,
  ): Promise<{ result: JsonObject; sessionId?: string }> {
    if (typeof wanted !== 'string') {
      throw new RpcError('invalidParams', "'protocolVersion' must be a string");
    }
    const { title, instruction } = await operate<EnvironmentDocument>(
      this.#play.dispatcher,
      principal,
      'get_environment',
      { env_id: envId },
    );
    const opened = played && isSocket ? undefined : await this.#play.open(principal, envId);
    const first = opened?.stepReply ?? (await this.#play.look(principal, played!));
    return {
      result: {
        protocolVersion: MCP_VERSIONS.includes(wanted) ? wanted : MCP_VERSIONS[0],
        capabilities: { tools: { listChanged: false } },
        serverInfo: { name: `ragen/${envId}`, title, version: API_VERSION },
        instructions: `${instruction}\n\nAct with the tool ${TOOL}. You see:\n${textOf(first.observation)}`,
      },
      ...(opened && { sessionId: opened.played.sessionId }),
    };
  }

  async #list({ principal, envId, played }: McpCaller): Promise<JsonObject> {
    const tools = await toolsOf(this.#play, principal, envId, played);
    return {
      tools: tools.map(({ name, description, schema }) => ({ name, description, inputSchema: schema })),
    };
  }

  async #call(params: JsonObject, caller: McpCaller): Promise<JsonObject> {
    const { name, arguments: fields = {} } = params;
    if (name === undefined) throw new RpcError('invalidParams', "Missing 'name' in params");
    if (name !== TOOL) {
      throw new RpcError('invalidParams', `Tool not found: ${JSON.stringify(name)}; there is ${TOOL}`);
    }
    if (!isObject(fields)) throw new RpcError('invalidParams', "'arguments' must be an object");
    const { principal, envId } = caller;
    const played = caller.played ?? (await this.#seatOf(params, caller));
    if (played) return toolResult(await this.#play.step(principal, played, fields));
    const { played: passing } = await this.#play.open(principal, envId);
    try {
      return toolResult(await this.#play.step(principal, passing, fields));
    } finally {
      await this.#play.close(principal, passing);
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

  /** The session that the parameters name, if they do. */
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

const NO_SESSION = new Set(['unknown_session', 'session_closed', 'session_expired']);

function isAboutParams(problem: Problem): boolean {
  return problem.status === 422 || NO_SESSION.has(problem.code);
}
