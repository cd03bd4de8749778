import { type Json, type JsonObject, parseJson } from '../../shared/json.ts';
import type { ResponseFormat } from '../../shared/response.ts';
import type { SparseGrammar, TokenGrammar } from '../generation/grammar.ts';
import { responseJson } from '../generation/json/response-grammar.ts';
import type { ChatMessage } from '../models/tokenizer/tokenizer.ts';

/** An environment's description for its players; `describe` of the server gives it for the effective configuration. */
export interface TaskDescription {
  readonly environmentId: string;
  readonly instruction: string;
  readonly legend: readonly { readonly symbol: string; readonly meaning: string }[];
  /** Names of a discrete space's actions, in the order of their ids. */
  readonly actions?: readonly string[];
  /** Examples of text or JSON actions, as written. */
  readonly exampleActions?: readonly string[];
  /** Actions are JSON: the examples are a few of many. */
  readonly jsonActions?: boolean;
  /** JSON schema of the actions, where the environment lists none: constrained responses fit it. */
  readonly actionSchema?: JsonObject;
  /** Actions drawn from that schema, as written. */
  readonly drawnActions?: readonly string[];
  /** An example action, where there is no list of actions; it may not be valid in every state. */
  readonly exampleAction?: string;
  /** Format of free-text actions. */
  readonly actionFormat?: string;
  /** Words of observations and actions; absent for free text. */
  readonly vocabulary?: readonly string[];
}

/** A task under the caps of a tag: everything a prompt depends on besides the state. */
export interface PromptTask {
  readonly description: TaskDescription;
  readonly maxTurns: number;
  readonly maxActionsPerTurn: number;
  readonly maxActionsPerTrajectory: number;
  /** Longest response in tokens. */
  readonly responseLength: number;
  /** The response begins with `<think>…</think>`. */
  readonly think: boolean;
  /** The `compact` prompt says how many turns are left. */
  readonly turnsLeft?: boolean;
}

/** The state a turn's prompt shows. */
export interface TurnView {
  /** From 1. */
  readonly turn: number;
  readonly state: string;
  readonly actionsLeft: number;
  /** Reward of the previous turn, without the format penalty; absent on the first turn. */
  readonly lastReward?: number;
  /** The previous turn had no valid action, so the state is unchanged. */
  readonly lastInvalid: boolean;
}

/** A finished turn, for prompts that repeat it. */
export interface PastTurn {
  readonly view: TurnView;
  /** The response in the environment's reading. */
  readonly response: string;
}

/** The wording of a prompt: pure functions to text. */
export interface PromptWording {
  system(): string;
  /** The user's message of a turn, without the prime. */
  turn(view: TurnView): string;
  /** One user message with all turns so far and the current one. */
  folded(view: TurnView, past: readonly PastTurn[]): string;
}

/**
 * A prompt as tokens, for appending: `opening`, then for each turn `turn`, the sampled response, `close`. Sampled
 * tokens are never tokenized again.
 */
export interface PromptTokens {
  opening(): readonly number[];
  /** The turn up to the prime, the prime included. */
  turn(view: TurnView): readonly number[];
  folded(view: TurnView, past: readonly PastTurn[]): readonly number[];
  /** Tokens that end the response before the next turn can begin; fewer where the response ended itself. */
  close(response: ArrayLike<number>): readonly number[];
  /** Sampling stops after any of these. */
  readonly stopTokenIds: readonly number[];
  /** Tokens that end a response besides its text, e.g. the end-of-turn marker. */
  readonly ending: readonly number[];
  /** Tokens that name an action; empty where names are more than a token. */
  readonly actionTokenIds: ReadonlySet<number>;
  /**
   * Allows well-formed responses only; absent where the environment lists no actions, or too many.
   * @throws Error saying why JSON actions have none
   */
  readonly grammar?: TokenGrammar;
  /**
   * Allows well-formed responses with one of the actions of a state alone.
   * @throws Error where they make no grammar, or a response has no room for one
   */
  stateGrammar(actions: readonly string[]): SparseGrammar;
  /** Tokens of the response with an action, as the grammars of states spell it; undefined where no response can hold it. */
  stateResponse(action: string): readonly number[] | undefined;
}

export interface Prompt {
  readonly task: PromptTask;
  readonly format: ResponseFormat;
  /** Beginning of the response that is part of the prompt: `<think>`, or `<answer>` without thinking. */
  readonly prime: string;
  readonly wording: PromptWording;
  /** A well-formed response with these actions and an empty thought, without the prime. */
  compose(actions: readonly string[]): string;
  /** Absent without a tokenizer. */
  readonly tokens?: PromptTokens;
}

/** Beginning of a response that is part of the prompt. */
export function responsePrime(think: boolean): string {
  return think ? '<think>' : '<answer>';
}

/** The response format and the prime that follow from a task. */
export function responseRules(task: PromptTask): { readonly format: ResponseFormat; readonly prime: string } {
  return {
    format: { think: task.think, maxActions: task.maxActionsPerTurn },
    prime: responsePrime(task.think),
  };
}

/** A JSON action as the grammar of its schema spells it. */
export function spelledJson(action: string, schema: JsonObject): string {
  const value = parseJson(action);
  return value === undefined ? action : responseJson(value as Json, schema);
}

/** A well-formed response with an empty thought, without its prime. */
export function composeResponse(task: PromptTask, actions: readonly string[], separator: string): string {
  const schema = task.description.actionSchema;
  const written = schema ? actions.map(action => spelledJson(action, schema)) : actions;
  return `${task.think ? '</think><answer>' : ''}${written.join(separator)}</answer>`;
}

/** The conversation as messages, the current turn last. */
export function promptMessages(prompt: Prompt, view: TurnView, past: readonly PastTurn[]): ChatMessage[] {
  const messages: ChatMessage[] = [{ role: 'system', content: prompt.wording.system() }];
  for (const turn of past) {
    messages.push({ role: 'user', content: prompt.wording.turn(turn.view) });
    messages.push({ role: 'assistant', content: turn.response });
  }
  messages.push({ role: 'user', content: prompt.wording.turn(view) });
  return messages;
}
