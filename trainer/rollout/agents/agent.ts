import type { Json } from '../../../shared/json.ts';
import type { ActionNames } from '../../../shared/response.ts';
import type { SamplingSettings, TopLogProbs } from '../../generation/generation.ts';
import type { SparseGrammar } from '../../generation/grammar.ts';
import type { ChatMessage } from '../../models/tokenizer/chat-template.ts';

/** Plays episodes turn by turn: a local policy, a remote model, or a script. */
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
  /** Allows responses with the state's valid actions alone; absent where they are not listed or not asked for. */
  readonly grammar?: SparseGrammar;
  /** Text at the start of the response that belongs to it, e.g. `<think>`. */
  readonly prime: string;
  readonly episode: EpisodeView;
  /** The conversation as messages, for agents that read text. Made on demand. */
  messages(): readonly ChatMessage[];
}

/** An agent's view of the episode. */
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
  /** Examples of actions of other spaces, as text. */
  readonly exampleActions?: readonly string[];
  /** Actions that are legal now, as text; absent unless responses are held to them. */
  readonly validActions?: readonly string[];
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
  /** The full response, for agents that cannot be primed. Absent: the prime and the text after it. */
  readonly rawResponse?: string;
  /** Sampled tokens. Absent: the text is encoded, if there is a tokenizer. */
  readonly tokenIds?: Int32Array;
  /** Same length as `tokenIds`; absent: zeros. */
  readonly logProbs?: Float32Array;
  readonly values?: Float32Array;
  readonly versions?: Int32Array;
  /** Likeliest tokens at each position; absent unless the run keeps them. */
  readonly top?: readonly TopLogProbs[];
  /** Tokens that could have been sampled at each position; absent without the turn's grammar. */
  readonly allowed?: readonly Int32Array[];
  readonly finishReason: 'stop' | 'length' | 'context';
  /** A random, exploratory turn: nothing to imitate. */
  readonly exploratory?: boolean;
}
