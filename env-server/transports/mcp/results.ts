import type { Json, JsonObject } from '../../../shared/json.ts';
import { problemOf } from '../../operations/dispatch/problem-of.ts';
import type { Session, SessionDetail, StepResult, ValidActions } from '../../operations/schemas.ts';
import { PROBLEMS } from '../../problems.ts';
import type { ToolContent, ToolResult } from './endpoint.ts';

const PNG = 'data:image/png;base64,';

/** An observation as content: a picture where it is one, else text. */
export function contentOf(observation: unknown): ToolContent[] {
  if (typeof observation !== 'string') return [{ type: 'text', text: JSON.stringify(observation) }];
  if (!observation.startsWith(PNG)) return [{ type: 'text', text: observation }];
  return [{ type: 'image', data: observation.slice(PNG.length), mimeType: 'image/png' }];
}

/** The beginning of an episode. */
export function resetResult({ session_id, episode_id, seed, step, observation, info }: Session): ToolResult {
  const told = { session_id, episode_id, seed, step, observation, info } as unknown as JsonObject;
  return { content: contentOf(observation), structuredContent: told, isError: false };
}

export function stepResult(result: StepResult): ToolResult {
  // The SDK takes plain objects only.
  const { session_id, episode_id, step, observation, reward, terminated, truncated, info } = result;
  const plain = { session_id, episode_id, step, observation, reward, terminated, truncated, info };
  const told = [`Reward: ${reward}.`];
  if (info.action_is_valid === false) told.push('The action is not valid here.');
  told.push(...endText(terminated, truncated, info.success === true));
  return {
    content: [...contentOf(observation), { type: 'text', text: told.join(' ') }],
    structuredContent: plain as unknown as JsonObject,
    isError: false,
  };
}

/** How a session stands. */
export function observeResult(session: SessionDetail): ToolResult {
  const { session_id, episode_id, seed, step, observation, info, terminated, truncated } = session;
  const told = {
    session_id,
    episode_id,
    seed,
    step,
    observation,
    return: session.return,
    terminated,
    truncated,
    info,
  };
  const status = [`Step ${step} of at most ${session.max_episode_steps}. Return: ${session.return}.`];
  status.push(...endText(terminated, truncated, info.success === true));
  return {
    content: [...contentOf(observation), { type: 'text', text: status.join(' ') }],
    structuredContent: told as unknown as JsonObject,
    isError: false,
  };
}

/** @param format how an action is written, where they cannot be listed */
export function validActionsResult({ valid_actions: actions }: ValidActions, format: string): ToolResult {
  const text =
    actions === null ? `They cannot be listed. An action is ${format}.` : actions.join('\n') || 'None.';
  return {
    content: [{ type: 'text', text }],
    structuredContent: { valid_actions: actions as Json },
    isError: false,
  };
}

export const closedResult = (sessionId: string): ToolResult => ({
  content: [{ type: 'text', text: 'The session is closed.' }],
  structuredContent: { session_id: sessionId, closed: true },
  isError: false,
});

/** What went wrong with a call, for the model to read. */
export function failureResult(error: unknown): ToolResult {
  const { code, message } = problemOf(error);
  const { retryable } = PROBLEMS[code];
  return {
    content: [{ type: 'text', text: message }],
    structuredContent: { code, detail: message, retryable },
    isError: true,
  };
}

function endText(terminated: boolean, truncated: boolean, success: boolean): string[] {
  if (!terminated && !truncated) return [];
  return [`The episode is over: ${success ? 'success' : terminated ? 'no success' : 'cut short'}.`];
}
