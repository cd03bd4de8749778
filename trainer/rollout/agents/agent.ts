import type { Json } from '../../../shared/json.ts';
import type { ActionNames } from '../../../shared/response.ts';
import type { SamplingSettings, TopLogProbs } from '../../generation/generation.ts';
import type { ChatMessage } from '../../models/tokenizer/chat-template.ts';

/** Plays episodes turn by turn: a local policy, a remote model, a script. */
export interface Agent {
  respond(turn: AgentTurn): Promise<AgentReply>;
  /** The sequence will not be continued. */
  release(sequenceId: number): void;
}

/** An agent's view before it answers. */
export interface AgentTurn {
  /** The token sequence this turn continues; a new number opens one. */
  readonly sequenceId: number;
  /** Tokens to append before sampling; empty for agents that read none. */
  readonly append: ArrayLike<number>;
  readonly sampling: SamplingSettings;
  /** Seeds this turn's draws. */
  readonly seed: number;
  /** Text that stands before the response and belongs to it, e.g. `<think>`. */
  readonly prime: string;
  readonly episode: EpisodeView;
  /** The conversation as messages, for agents that read text. Made on demand. */
  messages(): readonly ChatMessage[];
}

/** The episode as its agent may see it. */
export interface EpisodeView {
  readonly tag: string;
  readonly groupId: number;
  /** Position in the group, from 0. */
  readonly member: number;
  readonly seed: number;
  /** From 1. */
  readonly turn: number;
  readonly state: string;
  readonly actionsLeft: number;
  /** This one included. */
  readonly turnsLeft: number;
  readonly maxActionsPerTurn: number;
  /** The actions of a discrete space. */
  readonly actionNames?: ActionNames;
  /** Examples of other actions, as they are written. */
  readonly exampleActions?: readonly string[];
  /** Actions are JSON, which answers write as text. */
  readonly jsonActions?: boolean;
  /** A well-formed response with these actions, without the prime. */
  compose(actions: readonly string[]): string;
  /** Asks the environment's reference policy for the actions of this turn, at most `count`. */
  reference(policy: string, count: number): Promise<readonly Json[]>;
}

export interface AgentReply {
  /** Text after the prime. Absent: decoded from the tokens. */
  readonly text?: string;
  /** The response as it counts, for agents that cannot be primed. Absent: the prime and what was said after it. */
  readonly rawResponse?: string;
  /** Tokens of what was said. Absent: the text is encoded, where there is a tokenizer. */
  readonly tokenIds?: Int32Array;
  /** Same length as `tokenIds`; absent: zeros. */
  readonly logProbs?: Float32Array;
  readonly values?: Float32Array;
  readonly versions?: Int32Array;
  /** Likeliest tokens at each position; absent unless the run keeps them. */
  readonly top?: readonly TopLogProbs[];
  readonly finishReason: 'stop' | 'length' | 'context';
  /** Said at random to see what comes of it: nothing to imitate. */
  readonly exploratory?: boolean;
}
