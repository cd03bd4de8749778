import type { JsonObject } from '../../../shared/json.ts';
import { isObject } from '../../custom/answer.ts';
import { problemOf } from '../../operations/problems.ts';
import type { ProblemCode } from '../../problems.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ProblemHandler } from '../replies/problem-handler.ts';
import { countable, InvalidMessage, missing, notObject } from './faults.ts';
import type { OpenEnvPlay, OpenEnvStepReply, PlayedSession } from './play.ts';
import { TOOL, toolResult, toolsOf } from './tools.ts';

const LIST = 'list_tools';
const CALL = 'call_tool';

/** Errors after which there is no session to act in. */
export const SESSION_LOST = new Set<ProblemCode>([
  'unknown_session',
  'session_closed',
  'session_expired',
  'draining',
]);

/** OpenEnv's names for what can go wrong with a tool. */
type ToolErrorType = 'execution_error' | 'invalid_args' | 'tool_not_found' | 'timeout';

/** True if a step is one of OpenEnv's actions about tools. An environment's own field `type` goes first. */
export function isToolAction(played: PlayedSession, fields: JsonObject): boolean {
  if (fields.type !== LIST && fields.type !== CALL) return false;
  const { properties } = played.form.schema;
  return !isObject(properties) || !Object.hasOwn(properties, 'type');
}

/**
 * Carries out OpenEnv's `list_tools` and `call_tool`, which its `MCPToolClient` sends as steps. What goes wrong with a
 * call is part of the observation, as there.
 * After `ListToolsAction` and `CallToolAction` in `src/openenv/core/env_server/mcp_types.py` of OpenEnv.
 * @throws InvalidMessage for an action without a tool; Problem when the session is gone
 */
export async function toolAction(
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
