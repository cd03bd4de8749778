import type { Json } from '../../../shared/json.ts';
import { Random } from '../../../shared/random.ts';
import type { ActionNames } from '../../../shared/response.ts';
import type { SamplingSettings, TopLogProbs } from '../../generation/generation.ts';
import type { SparseGrammar } from '../../generation/grammar.ts';
import type { ChatMessage } from '../../models/tokenizer/tokenizer.ts';
import { writtenAction } from '../described-tag.ts';

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

export interface ReferenceAgentSettings {
  /** A reference policy of the environment, e.g. `optimal`; `random` takes actions uniformly. */
  readonly policy: string;
  /** Share of turns with random actions instead, 0 to 1; these are nothing to imitate. */
  readonly randomTurns?: number;
  /** Imitates random turns too: play with mistakes. */
  readonly learnRandomTurns?: boolean;
  /**
   * Number of random actions in a turn: `varied` draws it from one to the most a turn may hold, `full` always takes the
   * most. `varied` by default.
   */
  readonly randomCount?: 'varied' | 'full';
}

/** The player that takes actions uniformly. */
export const RANDOM = 'random';

/**
 * Answers like a reference policy, in well-formed responses with an empty thought: for demonstrations and baselines.
 * Where the policy has no action to take, it takes random ones. A state's grammar leaves room for one action.
 */
export function referenceAgent(settings: ReferenceAgentSettings): Agent {
  const { policy, randomTurns = 0, learnRandomTurns = false, randomCount = 'varied' } = settings;
  return {
    async respond({ seed, episode, grammar }) {
      const rng = Random.fromSeed(seed);
      const most = grammar ? 1 : Math.min(episode.maxActionsPerTurn, episode.actionsLeft);
      const atRandom = policy === RANDOM || rng.chance(randomTurns);
      const planned = atRandom ? [] : await episode.reference(policy, most);
      const exploratory = planned.length === 0 && policy !== RANDOM && !learnRandomTurns;
      const actions =
        planned.length > 0
          ? planned.map(action => nameOf(action, episode))
          : await randomActions(episode, randomCount === 'full' ? most : 1 + rng.integer(most), rng);
      const text = episode.compose(actions);
      return { text, finishReason: 'stop', exploratory };
    },
    release() {},
  };
}

/**
 * One of the valid actions if they are known. Else uniform over the names of a discrete space or the examples of another; without
 * both, the environment is asked.
 */
async function randomActions(episode: EpisodeView, count: number, rng: Random): Promise<readonly string[]> {
  const { validActions = [], actionNames, exampleActions } = episode;
  if (validActions.length > 0) return [rng.choice(validActions)];
  const names = actionNames?.names ?? exampleActions;
  if (names) return Array.from({ length: count }, () => rng.choice(names));
  const planned = await episode.reference(RANDOM, count);
  return planned.map(action => nameOf(action, episode));
}

/** An action as responses write it. @throws Error for one outside the action space */
export function nameOf(
  action: Json,
  { actionNames, jsonActions = false }: Pick<EpisodeView, 'actionNames' | 'jsonActions'>,
): string {
  if (jsonActions || typeof action === 'string') return writtenAction(action, jsonActions);
  const name = actionNames?.names[Number(action) - actionNames.start];
  if (name === undefined)
    throw new Error(`the reference policy gave ${JSON.stringify(action)}, which is not an action`);
  return name;
}
