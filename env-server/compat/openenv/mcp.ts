import type { JsonObject } from '../../../shared/json.ts';
import type { Problem } from '../../../shared/problems.ts';
import { isObject } from '../../custom/answer.ts';
import type { ProblemDesk } from '../../http/problems.ts';
import { problemOf } from '../../operations/problem-of.ts';
import type { EnvironmentDocument } from '../../operations/schemas.ts';
import { TooManySessions } from '../../sessions/admission.ts';
import type { Principal } from '../../sessions/principal.ts';
import { operate } from '../operate.ts';
import { actionForm } from './action-form.ts';
import { capacityOf } from './capacity.ts';
import { countable, InvalidMessage } from './faults.ts';
import { RpcError, type RpcRequest, readRpc, rpcFailure, rpcId, rpcSuccess } from './json-rpc.ts';
import type { OpenEnvPlay, Seat, Shown } from './play.ts';

/** The tool every environment offers: one action. OpenEnv reserves reset, step, state and close. */
const TOOL = 'act';

/** Where a request comes from. */
export interface McpCaller {
  readonly principal: Principal;
  readonly envId: string;
  /** The socket's own session, where it comes over one. */
  readonly seat?: Seat;
}

/** OpenEnv's JSON-RPC: an environment as a tool, and sessions that outlive a request. */
export class McpDesk {
  readonly #play: OpenEnvPlay;
  readonly #desk: ProblemDesk;

  constructor(play: OpenEnvPlay, desk: ProblemDesk) {
    this.#play = play;
    this.#desk = desk;
  }

  /** Answers a request, with an error where it must; never throws. */
  async answer(given: unknown, caller: McpCaller): Promise<JsonObject> {
    try {
      const request = readRpc(given);
      return rpcSuccess(request.id, await this.#run(request, caller));
    } catch (error) {
      return rpcFailure(rpcId(given), this.#errorOf(error));
    }
  }

  #run({ method, params }: RpcRequest, caller: McpCaller): Promise<JsonObject> {
    switch (method) {
      case 'tools/list':
        return this.#list(caller);
      case 'tools/call':
        return this.#call(params, caller);
      case 'openenv/session/create':
        return this.#create(caller);
      case 'openenv/session/close':
        return this.#close(params, caller);
      default:
        throw new RpcError('methodNotFound', `Method not found: ${method}`);
    }
  }

  async #list({ principal, envId }: McpCaller): Promise<JsonObject> {
    const { dispatcher } = this.#play;
    const { instruction } = await operate<EnvironmentDocument>(dispatcher, principal, 'get_environment', {
      env_id: envId,
    });
    const { schema } = actionForm(dispatcher.services.catalogue.variant(envId));
    return { tools: [{ name: TOOL, description: instruction, inputSchema: schema }] };
  }

  async #call(params: JsonObject, caller: McpCaller): Promise<JsonObject> {
    const { name, arguments: fields = {} } = params;
    if (name === undefined) throw new RpcError('invalidParams', "Missing 'name' in params");
    if (name !== TOOL) {
      throw new RpcError('invalidParams', `Tool not found: ${JSON.stringify(name)}; there is ${TOOL}`);
    }
    if (!isObject(fields)) throw new RpcError('invalidParams', "'arguments' must be an object");
    const { principal, envId } = caller;
    const seat = caller.seat ?? (await this.#seatOf(params, caller));
    if (seat) return toolResult(await this.#play.step(principal, seat, fields));
    const { seat: passing } = await this.#play.open(principal, envId);
    try {
      return toolResult(await this.#play.step(principal, passing, fields));
    } finally {
      await this.#play.close(principal, passing);
    }
  }

  async #create({ principal, envId, seat }: McpCaller): Promise<JsonObject> {
    const { sessionId } = seat ?? (await this.#play.open(principal, envId)).seat;
    return { session_id: sessionId };
  }

  async #close(params: JsonObject, caller: McpCaller): Promise<JsonObject> {
    if (params.session_id !== undefined && params.session_id === caller.seat?.sessionId) {
      throw new RpcError(
        'invalidRequest',
        'Cannot close active WebSocket-managed session via MCP method; close the socket',
      );
    }
    const seat = await this.#seatOf(params, caller);
    if (!seat) throw new RpcError('invalidParams', "Invalid params - 'session_id' is required");
    await this.#play.close(caller.principal, seat);
    return { session_id: seat.sessionId, closed: true };
  }

  /** The session that the parameters name, if they do. */
  async #seatOf({ session_id: id }: JsonObject, { principal, envId }: McpCaller): Promise<Seat | undefined> {
    if (id === undefined) return undefined;
    if (typeof id !== 'string' || id === '') {
      throw new RpcError('invalidParams', "'session_id' must be the id of a session");
    }
    return this.#play.attach(principal, envId, id);
  }

  #errorOf(error: unknown): RpcError {
    if (error instanceof RpcError) return error;
    this.#desk.document(countable(error));
    if (error instanceof InvalidMessage) return new RpcError('invalidParams', error.message);
    const problem = problemOf(error);
    if (isAboutParams(problem)) return new RpcError('invalidParams', problem.message);
    if (problem instanceof TooManySessions) {
      return new RpcError('serverError', problem.message, capacityOf(problem));
    }
    return new RpcError('internalError', problem.message);
  }
}

const NO_SESSION = new Set(['unknown_session', 'session_closed', 'session_expired']);

function isAboutParams(problem: Problem): boolean {
  return problem.status === 422 || NO_SESSION.has(problem.code);
}

/** A step as the result of a tool, in the form that OpenEnv's own tools give theirs. */
function toolResult({ observation, reward, done, metadata }: Shown): JsonObject {
  const data = { observation, reward, done, metadata };
  const text = typeof observation.text === 'string' ? observation.text : JSON.stringify(observation);
  return {
    content: [{ type: 'text', text }],
    structured_content: data,
    data,
    is_error: false,
  };
}
