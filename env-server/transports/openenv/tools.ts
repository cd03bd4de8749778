import type { JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import type { EnvironmentDocument } from '../../operations/schemas/environment.ts';
import type { Problem, ProblemCode } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import { contentOf, failureResult, type ToolDocument, type ToolResult } from '../mcp/results.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { countable, InvalidMessage, missing, notObject } from './faults.ts';
import { actionForm } from './messages.ts';
import type { OpenEnvPlay, OpenEnvStepReply, PlayedSession } from './play.ts';

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

/** A step as a tool result in MCP's form, with the keys of OpenEnv's own tools. */
export function toolResult({ observation, reward, done, metadata }: OpenEnvStepReply): ToolResult {
  const data = { observation, reward, done, metadata };
  return {
    content: contentOf(observation.parts ?? textOf(observation)),
    structuredContent: data,
    isError: false,
    structured_content: data,
    data,
    is_error: false,
  };
}

/** A step after the end of the episode as a tool result. None of OpenEnv's tools resets. */
export function overResult(problem: Problem, { sessionId }: PlayedSession): ToolResult {
  const advice = `No tool does so: send a reset over OpenEnv's /ws or POST /v1/sessions/${sessionId}/reset, or open another session.`;
  const { structuredContent: data } = failureResult(problem);
  return {
    content: contentOf(`${problem.message}. ${advice}`),
    structuredContent: data,
    isError: true,
    structured_content: data,
    data,
    is_error: true,
  };
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
