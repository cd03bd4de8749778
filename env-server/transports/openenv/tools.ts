import type { JsonObject } from '../../../shared/json.ts';
import type { EnvironmentDocument } from '../../operations/schemas/environment.ts';
import type { Principal } from '../../sessions/principal.ts';
import type { ToolDocument, ToolResult } from '../mcp/endpoint.ts';
import { contentOf } from '../mcp/results.ts';
import { actionForm } from './action-form.ts';
import type { OpenEnvPlay, OpenEnvStepReply, PlayedSession } from './play.ts';

/** The tool every environment offers: one action. OpenEnv reserves reset, step, state and close. */
export const TOOL = 'act';

/**
 * The tools of an environment.
 * @param seat a session with wrappers that may take other actions
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

/**
 * A step as the result of a tool: in the form of the Model Context Protocol, and with the keys that OpenEnv's own tools
 * have.
 */
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

/** An observation as text. */
export function textOf(observation: JsonObject): string {
  return typeof observation.text === 'string' ? observation.text : JSON.stringify(observation);
}
