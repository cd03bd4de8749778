import { isObject, type Json, type JsonObject } from '../../../shared/json.ts';
import { isParts, textOfParts, withoutImages } from '../../../shared/observation-parts.ts';
import type { OpenEnvReply } from '../../custom/remote/openenv-protocol.ts';
import { chain, type MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { OperationInput } from '../../operations/operation.ts';
import { problemOf } from '../../operations/problems.ts';
import type { EnvironmentDocument } from '../../operations/schemas/fields.ts';
import type { CreatedSession, Session, SessionDetail, StepResult } from '../../operations/schemas/session.ts';
import type { Problem, ProblemCode } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { Dispatcher } from '../../stages/dispatcher.ts';
import { findSession } from '../addressing.ts';
import { contentOf, failureResult, type ToolDocument, type ToolResult } from '../mcp/tools.ts';
import { floatText } from '../replies/content.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import {
  type ActionForm,
  actionForm,
  countable,
  InvalidMessage,
  missing,
  notObject,
  type ResetRequest,
} from './messages.ts';

/** A session as a client of this protocol plays it. */
export interface PlayedSession {
  readonly sessionId: string;
  readonly envId: string;
  readonly form: ActionForm;
  /** The client's own name for the episode. */
  episodeName: string | undefined;
}

/** Reply to reset and step; `metadata` holds fields that the protocol lacks. */
export interface OpenEnvStepReply extends Omit<OpenEnvReply, 'reward'> {
  /** Null when no step was taken. */
  readonly reward: number | null;
  readonly metadata: JsonObject;
}

/** A reply as JSON. */
export function stepReplyText({ observation, reward, done, metadata }: OpenEnvStepReply): string {
  return `{"observation":${JSON.stringify(observation)},"reward":${reward === null ? null : floatText(reward)},"done":${done},"metadata":${JSON.stringify(metadata)}}`;
}

/** The protocol's operations for one client, as operations of the server. */
export class OpenEnvPlay {
  readonly dispatcher: Dispatcher;

  constructor(dispatcher: Dispatcher) {
    this.dispatcher = dispatcher;
  }

  /**
   * Opens a session and begins its first episode.
   * @throws Problem
   */
  open(
    principal: Principal,
    envId: string,
    { input, episodeName }: ResetRequest = { input: {} },
  ): MaybePromise<{ played: PlayedSession; stepReply: OpenEnvStepReply }> {
    const created = this.#operate<CreatedSession>(principal, 'create', { env_id: envId, ...input });
    return chain(created, session => {
      const form = actionForm(this.dispatcher.services.catalog.variant(envId));
      return {
        played: { sessionId: session.session_id, envId, form, episodeName },
        stepReply: afterReset(session),
      };
    });
  }

  /**
   * Continues a session opened over any transport.
   * @throws Problem `unknown_session`, also for a session of another environment
   */
  attach(principal: Principal, envId: string, sessionId: string): MaybePromise<PlayedSession> {
    return chain(findSession(this.dispatcher, principal, sessionId, envId), ({ variant }) => ({
      sessionId,
      envId,
      form: actionForm(variant),
      episodeName: undefined,
    }));
  }

  /** @throws Problem */
  reset(
    principal: Principal,
    played: PlayedSession,
    { input, episodeName }: ResetRequest,
  ): MaybePromise<OpenEnvStepReply> {
    const reset = this.#operate<Session>(principal, 'reset', { session_id: played.sessionId, ...input });
    return chain(reset, session => {
      played.episodeName = episodeName;
      return afterReset(session);
    });
  }

  /** @throws Problem, InvalidMessage */
  step(
    principal: Principal,
    played: PlayedSession,
    fields: JsonObject,
    timeoutMs?: number,
  ): MaybePromise<OpenEnvStepReply> {
    const stepped = this.#operate<StepResult>(principal, 'step', {
      session_id: played.sessionId,
      action: played.form.read(fields),
      ...(timeoutMs !== undefined && { timeout_ms: timeoutMs }),
    });
    return chain(stepped, ({ observation, reward, terminated, truncated, ...rest }) => ({
      observation: observationObject(observation as Json),
      reward,
      done: terminated || truncated,
      metadata: {
        session_id: rest.session_id,
        step: rest.step,
        terminated,
        truncated,
        info: rest.info as JsonObject,
      },
    }));
  }

  /** @throws Problem */
  state(principal: Principal, played: PlayedSession): MaybePromise<JsonObject> {
    const got = this.#operate<SessionDetail>(principal, 'get', { session_id: played.sessionId });
    return chain(got, session => ({
      episode_id: played.episodeName ?? session.episode_id,
      step_count: session.step,
      session_id: session.session_id,
      env_id: session.env_id,
      seed: session.seed,
      return: session.return,
      terminated: session.terminated,
      truncated: session.truncated,
      structured: session.structured as Json,
    }));
  }

  /**
   * The current observation, without a step.
   * @throws Problem
   */
  look(principal: Principal, { sessionId }: PlayedSession): MaybePromise<OpenEnvStepReply> {
    const got = this.#operate<SessionDetail>(principal, 'get', { session_id: sessionId });
    return chain(got, session => ({
      observation: observationObject(session.observation as Json),
      reward: null,
      done: session.terminated || session.truncated,
      metadata: { session_id: session.session_id, seed: session.seed },
    }));
  }

  /** @throws Problem */
  close(principal: Principal, { sessionId }: Pick<PlayedSession, 'sessionId'>): MaybePromise<null> {
    return this.#operate(principal, 'close', { session_id: sessionId });
  }

  #operate<T>(principal: Principal, op: string, input: OperationInput): MaybePromise<T> {
    return this.dispatcher.operate(principal, op, input);
  }
}

function afterReset({ session_id, seed, observation }: Session): OpenEnvStepReply {
  return {
    observation: observationObject(observation as Json),
    reward: 0,
    done: false,
    metadata: { session_id, seed },
  };
}

/** OpenEnv's observations are objects: text is in the field `text`, and parts are in `parts` next to it. */
function observationObject(observation: Json): JsonObject {
  if (isParts(observation)) {
    return { text: withoutImages(textOfParts(observation)), parts: observation as unknown as Json };
  }
  return typeof observation === 'string' ? { text: observation } : (observation as JsonObject);
}

/** The tool of every environment, which takes one action. OpenEnv reserves reset, step, state and close. */
export const TOOL = 'act';

/**
 * The tools of an environment.
 * @param seat a session with wrappers that may change the action space
 * @throws Problem
 */
export async function toolsOf(
  play: OpenEnvPlay,
  principal: Principal,
  envId: string,
  played?: PlayedSession,
): Promise<ToolDocument[]> {
  const { dispatcher } = play;
  const { instruction } = await dispatcher.operate<EnvironmentDocument>(principal, 'get_environment', {
    env_id: envId,
  });
  const { schema } = played?.form ?? actionForm(dispatcher.services.catalog.variant(envId));
  return [{ name: TOOL, description: instruction, inputSchema: schema }];
}

/** A tool result in MCP's form, with the keys of OpenEnv's own tools. */
const resultOf = (content: ToolResult['content'], data: JsonObject, isError: boolean): ToolResult => ({
  content,
  structuredContent: data,
  isError,
  structured_content: data,
  data,
  is_error: isError,
});

/** A step as a tool result. */
export function toolResult({ observation, reward, done, metadata }: OpenEnvStepReply): ToolResult {
  const content = contentOf(observation.parts ?? textOf(observation));
  return resultOf(content, { observation, reward, done, metadata }, false);
}

/** A step after the end of the episode as a tool result. None of OpenEnv's tools resets. */
export function overResult(problem: Problem, { sessionId }: PlayedSession): ToolResult {
  const advice = `No tool does so: send a reset over OpenEnv's /ws or POST /v1/sessions/${sessionId}/reset, or open another session.`;
  return resultOf(contentOf(`${problem.message}. ${advice}`), failureResult(problem).structuredContent, true);
}

/** An observation as text. */
export function textOf(observation: JsonObject): string {
  return typeof observation.text === 'string' ? observation.text : JSON.stringify(observation);
}

const LIST = 'list_tools';
const CALL = 'call_tool';

/** Errors after which no session is left to act in. */
export const SESSION_LOST = new Set<ProblemCode>([
  'unknown_session',
  'session_closed',
  'session_expired',
  'draining',
]);

/** OpenEnv's error types for tools. */
type ToolErrorType = 'execution_error' | 'invalid_args' | 'tool_not_found' | 'timeout';

/**
 * Takes a step: an action of the environment, or one of OpenEnv's tool actions.
 * @throws InvalidMessage, Problem
 */
export function takeStep(
  { play, problemHandler }: { readonly play: OpenEnvPlay; readonly problemHandler: ProblemHandler },
  principal: Principal,
  played: PlayedSession,
  fields: JsonObject,
  timeoutMs?: number,
): MaybePromise<OpenEnvStepReply> {
  return isToolAction(played, fields)
    ? toolAction(play, problemHandler, principal, played, fields)
    : play.step(principal, played, fields, timeoutMs);
}

/** True if a step is one of OpenEnv's tool actions. An environment's own field `type` takes precedence. */
function isToolAction(played: PlayedSession, fields: JsonObject): boolean {
  if (fields.type !== LIST && fields.type !== CALL) return false;
  const { properties } = played.form.schema;
  return !isObject(properties) || !Object.hasOwn(properties, 'type');
}

/**
 * Carries out OpenEnv's `list_tools` and `call_tool`, which its `MCPToolClient` sends as steps. As in OpenEnv, a failed
 * call is part of the observation. After `ListToolsAction` and `CallToolAction` in
 * `src/openenv/core/env_server/mcp_types.py` of OpenEnv.
 * @throws InvalidMessage for an action without a tool; Problem when the session is gone
 */
async function toolAction(
  play: OpenEnvPlay,
  problemHandler: ProblemHandler,
  principal: Principal,
  played: PlayedSession,
  fields: JsonObject,
): Promise<OpenEnvStepReply> {
  if (fields.type === LIST) {
    const tools = await toolsOf(play, principal, played.envId, played);
    const observation = {
      tools: tools.map(({ name, description, inputSchema }) => ({
        name,
        description,
        input_schema: inputSchema,
      })),
    };
    return { observation, reward: null, done: false, metadata: { session_id: played.sessionId } };
  }
  const { tool_name: name, arguments: given = {} } = fields;
  if (typeof name !== 'string') throw new InvalidMessage([missing(['tool_name'])]);
  if (!isObject(given)) throw new InvalidMessage([notObject(['arguments'])]);
  const failed = (error_type: ToolErrorType, message: string): OpenEnvStepReply => ({
    observation: { tool_name: name, result: null, error: { error_type, message } },
    reward: null,
    done: false,
    metadata: { session_id: played.sessionId },
  });
  if (name !== TOOL) return failed('tool_not_found', `Unknown tool: '${name}'; there is '${TOOL}'`);
  try {
    const stepReply = await play.step(principal, played, given);
    return { ...stepReply, observation: { tool_name: name, result: toolResult(stepReply), error: null } };
  } catch (error) {
    const { code, status, message } = problemOf(error);
    if (SESSION_LOST.has(code)) throw error;
    problemHandler.document(countable(error));
    if (error instanceof InvalidMessage) return failed('invalid_args', error.message);
    if (status === 422) return failed('invalid_args', message);
    return failed(code === 'step_timeout' ? 'timeout' : 'execution_error', message);
  }
}
