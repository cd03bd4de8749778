import type { TProperties, TSchema } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import { isParts, partsOfText, textOfParts, withoutImages } from '../../../shared/observation-parts.ts';
import { closed, Type } from '../../../shared/schema/type.ts';
import type { ActionTool } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { jsonSchema } from '../../environments/core/spaces.ts';
import { problemOf } from '../../operations/problems.ts';
import { AnyJson, Config, Options, Seed, SessionId } from '../../operations/schemas/fields.ts';
import type {
  CreatedSession,
  Session,
  SessionDetail,
  StepResult,
  ValidActions,
} from '../../operations/schemas/session.ts';
import { compileCheck, type InputCheck } from '../../operations/validation.ts';
import { PROBLEMS, Problem } from '../../problems.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { type AddressedSession, findSession } from '../addressing.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { RpcError } from './json-rpc.ts';

/** Tools that every environment has. */
const COMMON_TOOLS = ['reset', 'step', 'observe', 'valid_actions', 'close_session'] as const;
type CommonTool = (typeof COMMON_TOOLS)[number];
const isCommon = (name: string): boolean => (COMMON_TOOLS as readonly string[]).includes(name);

/** A tool of an environment, with the check of its arguments. */
export interface Tool {
  readonly document: ToolDocument;
  readonly common: CommonTool | undefined;
  /** Action that a call of a named tool takes. */
  readonly action: ActionTool['action'] | undefined;
  readonly check: InputCheck;
}

export type Tools = ReadonlyMap<string, Tool>;

/** Source of the session id: the connection, or an argument of every call. */
export type Addressing = 'connection' | 'argument';

const tables = new WeakMap<Variant, { readonly [addressing in Addressing]?: Tools }>();

/** The tools of an environment under one configuration and wrappers. */
export function toolsOf(variant: Variant, addressing: Addressing): Tools {
  const known = tables.get(variant) ?? {};
  const tools = known[addressing] ?? makeTools(variant, addressing);
  tables.set(variant, { ...known, [addressing]: tools });
  return tools;
}

/**
 * The tool of a call, with validated arguments.
 * @throws RpcError for an unknown tool; Problem `invalid_request` for wrong arguments
 */
function toolOfCall(tools: Tools, name: string, given: JsonObject): Tool {
  const tool = tools.get(name);
  if (!tool) {
    const known = [...tools.keys()].join(', ');
    throw new RpcError('invalidParams', `Tool not found: ${JSON.stringify(name)}; there are ${known}`);
  }
  tool.check(given);
  return tool;
}

function makeTools(variant: Variant, addressing: Addressing): Tools {
  const { environment, config } = variant;
  const { instruction, actions, actionFormat } = environment.describe(config);
  const session: TProperties = addressing === 'argument' ? { session_id: SessionId } : {};
  // Tools of a service may have any name.
  const named = (environment.tools ?? []).filter(({ name }) => !isCommon(name));
  const written = actionFormat ?? (actions && `one of ${actions.join(', ')}`);
  const tools: Tool[] = [];
  const add = (
    name: CommonTool,
    description: string,
    properties: TProperties,
    shown: TProperties = {},
  ): void => {
    tools.push({
      document: { name, description, inputSchema: documentOf(closed({ ...properties, ...shown })) },
      common: name,
      action: undefined,
      check: compileCheck(closed(properties), name),
    });
  };
  add(
    'reset',
    `Begins an episode and shows what you see. ${instruction}`,
    addressing === 'connection'
      ? { seed: Type.Optional(Seed), options: Type.Optional(Options) }
      : {
          seed: Type.Optional(Seed),
          options: Type.Optional(Options),
          config: Type.Optional(Config),
          session_id: Type.Optional(
            Type.String({
              ...SessionId,
              description: 'A session to continue with; without it a new one is opened.',
            }),
          ),
        },
  );
  add(
    'step',
    `Takes an action${written === undefined ? '' : `: ${written}`}.`,
    { ...session, action: AnyJson() },
    { action: Type.Unsafe<Json>(jsonSchema(environment.spec.actionSpace)) },
  );
  add('observe', 'Shows what you see now, and how the episode stands.', session);
  add('valid_actions', 'Lists the actions that are legal now, where the environment can.', session);
  if (addressing === 'argument')
    add('close_session', 'Ends the session. One that nobody uses expires.', session);
  for (const { name, description, parameters, action } of named) {
    const schema = closed({ ...session, ...parameters.properties });
    tools.push({
      document: { name, description, inputSchema: documentOf(schema) },
      common: undefined,
      action,
      check: compileCheck(schema, name),
    });
  }
  return new Map(tools.map(tool => [tool.document.name, tool]));
}

/** A schema as plain JSON. */
const documentOf = (schema: TSchema): JsonObject => JSON.parse(JSON.stringify(schema)) as JsonObject;

/** A tool as MCP lists it. */
export type ToolDocument = {
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments: an object. */
  readonly inputSchema: JsonObject;
};

/** Content of a result: text, or a picture in base64. */
export type ToolContent =
  | { readonly type: 'text'; readonly text: string }
  | { readonly type: 'image'; readonly data: string; readonly mimeType: string };

/** Result of a tool call. Other protocols add keys. */
export type ToolResult = {
  readonly content: readonly ToolContent[];
  readonly structuredContent: JsonObject;
  /** True if the model should read `content` and try something else. */
  readonly isError: boolean;
  readonly [key: string]: Json;
};

/** Tools and resources offered to an MCP client in one request. */
export interface McpEndpoint {
  readonly serverInfo: { readonly name: string; readonly title: string; readonly version: string };
  /** Description of the task and of how to begin. */
  readonly instructions: string;
  tools(): MaybePromise<readonly ToolDocument[]>;
  /** @throws RpcError for a malformed call; `McpHost.errorOf` writes any other error */
  call(name: string, given: JsonObject): MaybePromise<ToolResult>;
}

/** An observation as content: text, and the pictures in it. */
export function contentOf(observation: unknown): ToolContent[] {
  if (isParts(observation)) {
    return observation.map(part =>
      part.type === 'text' ? part : { type: 'image', data: part.data, mimeType: part.mime },
    );
  }
  if (typeof observation !== 'string') return [{ type: 'text', text: JSON.stringify(observation) }];
  return contentOf(partsOfText(observation));
}

/** An observation without the pictures that the content already has. */
function named(observation: unknown): unknown {
  return isParts(observation) ? withoutImages(textOfParts(observation)) : observation;
}

const result = (content: readonly ToolContent[], structuredContent: object, isError = false): ToolResult => ({
  content,
  structuredContent: structuredContent as JsonObject,
  isError,
});

/** The beginning of an episode. */
function resetResult({ session_id, episode_id, seed, step, observation, info }: Session): ToolResult {
  const fields = { session_id, episode_id, seed, step, observation: named(observation), info };
  return result(contentOf(observation), fields);
}

function stepResult(stepped: StepResult): ToolResult {
  // The SDK takes plain objects only.
  const { session_id, episode_id, step, observation, reward, terminated, truncated, info } = stepped;
  const ids = { session_id, episode_id, step };
  const fields = { ...ids, observation: named(observation), reward, terminated, truncated, info };
  const texts = [`Reward: ${reward}.`];
  if (info.action_is_valid === false) texts.push('The action is not valid here.');
  texts.push(...endText(stepped));
  return result([...contentOf(observation), { type: 'text', text: texts.join(' ') }], fields);
}

/** Current state of a session. */
function observeResult(session: SessionDetail): ToolResult {
  const { session_id, episode_id, seed, step, observation, info, terminated, truncated } = session;
  const ids = { session_id, episode_id, seed, step };
  const now = { observation: named(observation), return: session.return, terminated, truncated, info };
  const status = [`Step ${step} of at most ${session.max_episode_steps}. Return: ${session.return}.`];
  status.push(...endText(session));
  return result([...contentOf(observation), { type: 'text', text: status.join(' ') }], { ...ids, ...now });
}

/** @param format how an action is written, where actions cannot be listed */
function validActionsResult({ valid_actions: actions }: ValidActions, format: string): ToolResult {
  const text =
    actions === null ? `They cannot be listed. An action is ${format}.` : actions.join('\n') || 'None.';
  return result([{ type: 'text', text }], { valid_actions: actions });
}

/** Describes a failed call for the model. */
export function failureResult(error: unknown): ToolResult {
  const { code, message } = problemOf(error);
  const { retryable } = PROBLEMS[code];
  return result([{ type: 'text', text: message }], { code, detail: message, retryable }, true);
}

function endText({
  terminated,
  truncated,
  info,
}: Pick<StepResult, 'terminated' | 'truncated' | 'info'>): string[] {
  if (!terminated && !truncated) return [];
  const how = info.success === true ? 'success' : terminated ? 'no success' : 'cut short';
  return [`The episode is over: ${how}.`];
}

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
        return result([{ type: 'text', text: 'The session is closed.' }], { session_id: id, closed: true });
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
