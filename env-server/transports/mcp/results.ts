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

/** The beginning of an episode. */
export function resetResult({ session_id, episode_id, seed, step, observation, info }: Session): ToolResult {
  const fields = { session_id, episode_id, seed, step, observation: named(observation), info };
  return {
    content: contentOf(observation),
    structuredContent: fields as unknown as JsonObject,
    isError: false,
  };
}

export function stepResult(result: StepResult): ToolResult {
  // The SDK takes plain objects only.
  const { session_id, episode_id, step, observation, reward, terminated, truncated, info } = result;
  const plain = {
    session_id,
    episode_id,
    step,
    observation: named(observation),
    reward,
    terminated,
    truncated,
    info,
  };
  const texts = [`Reward: ${reward}.`];
  if (info.action_is_valid === false) texts.push('The action is not valid here.');
  texts.push(...endText(terminated, truncated, info.success === true));
  return {
    content: [...contentOf(observation), { type: 'text', text: texts.join(' ') }],
    structuredContent: plain as unknown as JsonObject,
    isError: false,
  };
}

/** Current state of a session. */
export function observeResult(session: SessionDetail): ToolResult {
  const { session_id, episode_id, seed, step, observation, info, terminated, truncated } = session;
  const fields = {
    session_id,
    episode_id,
    seed,
    step,
    observation: named(observation),
    return: session.return,
    terminated,
    truncated,
    info,
  };
  const status = [`Step ${step} of at most ${session.max_episode_steps}. Return: ${session.return}.`];
  status.push(...endText(terminated, truncated, info.success === true));
  return {
    content: [...contentOf(observation), { type: 'text', text: status.join(' ') }],
    structuredContent: fields as unknown as JsonObject,
    isError: false,
  };
}

/** @param format how an action is written, where actions cannot be listed */
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

/** Describes a failed call for the model. */
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
