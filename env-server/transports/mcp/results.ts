import type { Json, JsonObject } from '../../../shared/json.ts';
import { isParts, partsOfText, textOfParts, withoutImages } from '../../../shared/observation-parts.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { problemOf } from '../../operations/problems.ts';
import type { Session, SessionDetail, StepResult, ValidActions } from '../../operations/schemas/session.ts';
import { PROBLEMS } from '../../problems.ts';

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
export function resetResult({ session_id, episode_id, seed, step, observation, info }: Session): ToolResult {
  const fields = { session_id, episode_id, seed, step, observation: named(observation), info };
  return result(contentOf(observation), fields);
}

export function stepResult(stepped: StepResult): ToolResult {
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
export function observeResult(session: SessionDetail): ToolResult {
  const { session_id, episode_id, seed, step, observation, info, terminated, truncated } = session;
  const ids = { session_id, episode_id, seed, step };
  const now = { observation: named(observation), return: session.return, terminated, truncated, info };
  const status = [`Step ${step} of at most ${session.max_episode_steps}. Return: ${session.return}.`];
  status.push(...endText(session));
  return result([...contentOf(observation), { type: 'text', text: status.join(' ') }], { ...ids, ...now });
}

/** @param format how an action is written, where actions cannot be listed */
export function validActionsResult({ valid_actions: actions }: ValidActions, format: string): ToolResult {
  const text =
    actions === null ? `They cannot be listed. An action is ${format}.` : actions.join('\n') || 'None.';
  return result([{ type: 'text', text }], { valid_actions: actions });
}

export const closedResult = (sessionId: string): ToolResult =>
  result([{ type: 'text', text: 'The session is closed.' }], { session_id: sessionId, closed: true });

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
