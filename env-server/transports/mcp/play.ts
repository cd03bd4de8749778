import type { JsonObject } from '../../../shared/json.ts';
import type {
  CreatedSession,
  Session,
  SessionDetail,
  StepResult,
  ValidActions,
} from '../../operations/schemas/session.ts';
import { Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { type AddressedSession, findSession } from '../addressing.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { RpcError } from './json-rpc.ts';
import {
  closedResult,
  failureResult,
  observeResult,
  resetResult,
  stepResult,
  type ToolResult,
  validActionsResult,
} from './results.ts';
import { type Tool, toolOfCall, toolsOf } from './tools.ts';

/** The tools of one environment as operations of the server, for one client. */
export class McpPlay {
  readonly #dispatcher: Dispatcher;
  readonly #problemHandler: ProblemHandler;
  readonly #principal: Principal;
  readonly #envId: string;

  constructor(dispatcher: Dispatcher, problemHandler: ProblemHandler, principal: Principal, envId: string) {
    this.#dispatcher = dispatcher;
    this.#problemHandler = problemHandler;
    this.#principal = principal;
    this.#envId = envId;
  }

  /** @throws Problem */
  async open(input: JsonObject = {}): Promise<{ session: AddressedSession; created: CreatedSession }> {
    const envId = this.#envId;
    const created = await this.#run<CreatedSession>('create', { env_id: envId, ...input });
    const variant = this.variant(input.config as JsonObject | undefined);
    return { session: { id: created.session_id, envId, variant }, created };
  }

  /** @throws Problem `unknown_session`, also for a session of another environment */
  async attach(id: string): Promise<AddressedSession> {
    return findSession(this.#dispatcher, this.#principal, id, this.#envId);
  }

  /** @throws Problem */
  async close(id: string): Promise<void> {
    await this.#run('close', { session_id: id });
  }

  /** @throws Problem */
  variant(config?: JsonObject): Variant {
    return this.#dispatcher.services.catalog.variant(this.#envId, config);
  }

  /**
   * Calls a tool. A failure inside the environment server becomes a result that the model can read.
   * @param session the connection's session; without it every call names one
   * @throws RpcError for a malformed call
   */
  async call(session: AddressedSession | undefined, name: string, given: JsonObject): Promise<ToolResult> {
    try {
      if (session) return await this.perform(session, name, given);
      const variant = this.variant();
      const tool = toolOfCall(toolsOf(variant, 'argument'), name, given);
      const { session_id: id, ...rest } = given;
      if (id === undefined) return resetResult((await this.open(rest)).created);
      if (rest.config !== undefined) {
        throw new Problem(
          'invalid_request',
          'reset: the config of a session cannot be changed; leave out session_id to open a new one',
        );
      }
      return await this.#perform(await this.attach(id as string), tool, rest);
    } catch (error) {
      if (error instanceof RpcError) throw error;
      this.#problemHandler.document(error, { sessionId: session?.id });
      return failureResult(error);
    }
  }

  /**
   * Calls a tool in a session.
   * @param key request key: repeating the call takes the step once
   * @throws Problem; RpcError for an unknown tool
   */
  perform(session: AddressedSession, name: string, given: JsonObject, key?: string): Promise<ToolResult> {
    const tool = toolOfCall(toolsOf(session.variant, 'connection'), name, given);
    return this.#perform(session, tool, given, key);
  }

  async #perform(
    { id, variant }: AddressedSession,
    { common, action }: Tool,
    args: JsonObject,
    key?: string,
  ): Promise<ToolResult> {
    const session = { session_id: id };
    const keyed = { ...session, ...(key !== undefined && { request_key: key }) };
    switch (common) {
      case undefined:
        return stepResult(
          await this.#run('step', { ...keyed, action: action!(args as { [name: string]: string }) }),
        );
      case 'reset':
        return resetResult(await this.#reset(id, args));
      case 'step':
        return stepResult(await this.#run<StepResult>('step', { ...keyed, action: args.action }));
      case 'observe':
        return observeResult(await this.#run<SessionDetail>('get', session));
      case 'valid_actions':
        return validActionsResult(await this.#run<ValidActions>('valid_actions', session), formatOf(variant));
      case 'close_session':
        await this.close(id);
        return closedResult(id);
    }
  }

  /** A reset without parameters returns the unplayed episode. */
  async #reset(id: string, wishes: JsonObject): Promise<Session> {
    if (Object.keys(wishes).length === 0) {
      const now = await this.#run<SessionDetail>('get', { session_id: id });
      if (now.step === 0 && !now.terminated && !now.truncated) return now;
    }
    return this.#run('reset', { session_id: id, ...wishes });
  }

  async #run<T>(op: string, input: JsonObject): Promise<T> {
    return this.#dispatcher.operate<T>(this.#principal, op, input);
  }
}

/** Describes the format of an action. */
function formatOf({ environment, config }: Variant): string {
  const { actionFormat } = environment.describe(config);
  return actionFormat ?? `for example ${JSON.stringify(environment.spec.exampleAction)}`;
}
