import type { Json, JsonObject } from '../../shared/json.ts';
import { isEndName, sumComponents } from '../../shared/step-info.ts';
import type { TopLogProbs } from '../generation/generation.ts';
import type { Reseed } from './environment-session.ts';

/** One turn of an episode: observation, response, outcome. */
export interface Turn {
  /** Observation text before the turn. */
  readonly state: string;
  /** The same as plain JSON, where the plan of the group asks for it. */
  readonly structured?: Json;
  /** States between its actions, where states are recorded and several actions were carried out. */
  readonly between?: readonly Json[];
  readonly actionsLeft: number;
  /** Executed actions in the environment's form. */
  readonly actions: readonly Json[];
  /** All sent actions, if the environment did not know some of them. */
  readonly sent?: readonly Json[];
  /** Names the state before the turn, where the rollout asks for that. */
  readonly stateKey?: string;
  /** Their names, where the environment names its actions. */
  readonly actionNames?: readonly string[];
  /** Sum of the executed actions' rewards, without the format penalty. */
  readonly reward: number;
  /** Format penalty of this turn: 0 or negative. */
  readonly penalty: number;
  /** Sums of the named rewards that the environment returned in `info.rewards`; absent where it returned none. */
  readonly rewards?: Readonly<Record<string, number>>;
  /** `info` of the last executed action. */
  readonly info: JsonObject;
  /** The response after cleaning, and as generated. */
  readonly response: string;
  readonly rawResponse: string;
  /** Range of the sampled tokens in the `tokenIds` of the turn's sample: [start, end). */
  readonly tokens: readonly [start: number, end: number];
  /** Which of the episode's samples that is; absent where there is only one. */
  readonly sample?: number;
  /** Why sampling ended; `length` means that the response was cut. Absent where nothing was sampled. */
  readonly finishReason?: 'stop' | 'length' | 'context';
  /** Nothing to imitate: a random turn (true), or an answer that the grammar of its state does not allow. */
  readonly exploratory?: true | 'not_allowed';
}

/**
 * A token sequence to train on. An episode is a single one if all of it fits the policy's context and the context mode
 * is `full`; otherwise every turn, or every run of turns between two cuts, is a separate one.
 */
export interface EpisodeSample {
  /** Prompt and response tokens in order. The arrays below run over them. */
  readonly tokenIds: Int32Array;
  /** Loss mask: 1 on sampled tokens that this sample trains; each sampled token is trained in exactly one sample. */
  readonly lossMask: Uint8Array;
  readonly logProbs: Float32Array;
  readonly values?: Float32Array;
  readonly versions: Int32Array;
  /** Likeliest tokens by position of sampled tokens; absent where the run keeps none. */
  readonly top?: ReadonlyMap<number, TopLogProbs>;
  /** Tokens that could have been sampled, by position of sampled tokens; absent unless they followed the state. */
  readonly allowed?: ReadonlyMap<number, Int32Array>;
  /** Tokens at the beginning that show earlier turns, which other samples train; absent where there are none. */
  readonly repeated?: number;
}

/** Cause of a truncation: the environment, or the tag's cap on actions or turns. */
export type Truncation = 'environment' | 'max_actions' | 'max_turns';

/**
 * Name of an episode's end; undefined where the environment gives none.
 * @param info of its last step
 */
export function endOf(info: JsonObject | undefined, truncation: Truncation | undefined): string | undefined {
  if (truncation === 'max_actions' || truncation === 'max_turns') return truncation;
  return isEndName(info?.ended_by) ? info.ended_by : undefined;
}

/**
 * A trajectory: a finished episode with every token as sampled; no text is tokenized twice. Its own tokens are those of the
 * last sample, which is the only one where `samples` is absent.
 */
export interface Episode extends EpisodeSample {
  readonly episodeId: string;
  readonly environmentId: string;
  readonly tag: string;
  readonly groupId: number;
  /** Position in the group, from 0. */
  readonly member?: number;
  readonly seed: number;
  /** Seed of the randomness besides the level; absent where `seed` covers it. */
  readonly dynamicsSeed?: number;
  /** Later changes of the random stream; absent where there are none. */
  readonly reseeds?: readonly Reseed[];
  /** Tree rollouts: the node that each turn belongs to, as the path from its root, e.g. `2.0.1`. The last is the leaf. */
  readonly nodes?: readonly string[];
  /** Rewards of the continuations from before each turn, where histories are valued; empty where none were played. */
  readonly continuations?: readonly (readonly RewardSums[])[];
  /** First turns that were taken over from an earlier episode: they are not trained, and their rewards do not count. */
  readonly prefix?: EpisodePrefix;
  readonly server: string;
  /** Names the level it started from; absent where its first observation does. */
  readonly levelId?: string;
  readonly turns: readonly Turn[];
  /** The episode ended and its last `info.success` was true. */
  readonly success: boolean;
  /** The episode ended, by the environment or by the cap on actions; false when the turns ran out. */
  readonly terminated: boolean;
  /** Cause of the truncation; absent if the environment's rules ended the episode. */
  readonly truncation?: Truncation;
  /** Name of its end: the environment's, or the cap of the trainer; absent where neither is known. */
  readonly endedBy?: string;
  /** Tokens that the policy would have read next if a truncated episode had continued; they give its value estimate. */
  readonly following?: Int32Array;
  /** Observation after the last turn. */
  readonly finalState?: string;
  /** Names the state after the last turn, where the rollout asks for that. */
  readonly finalStateKey?: string;
  /** The same as plain JSON, where the plan of the group asks for it. */
  readonly finalStructured?: Json;
  /** Every token sequence to train on, where it is more than one; all carry the episode's return. */
  readonly samples?: readonly EpisodeSample[];
  /** Counts of an episode that a program played through the gateway. */
  readonly program?: ProgramCounts;
}

/** A turn that can begin another episode: plain data. */
export interface PlayedTurn {
  readonly turn: Turn;
  /** Actions that were sent. */
  readonly sent: readonly Json[];
  readonly tokenIds: readonly number[];
  /** Observation after it. */
  readonly after: string;
}

/** Beginning of an episode that continues an earlier one. */
export interface EpisodePrefix {
  readonly turns: number;
  /** A success gives a head start, a failure handicaps. */
  readonly kind: PrefixKind;
}

export type PrefixKind = 'head_start' | 'handicap';

/** Outcomes of the calls of a program. */
interface ProgramCounts {
  /** Calls of the model. */
  readonly calls: number;
  /** Calls with tokens that continue those of an earlier one. */
  readonly merges: number;
  /** Sampled tokens that a later prompt contained as other ids. */
  readonly retokenizedTokens: number;
  /** Earlier failures of the program. */
  readonly failedAttempts: number;
}

/** The token sequences to train on, one or more. */
export function samplesOf(episode: EpisodeSample & Pick<Episode, 'samples'>): readonly EpisodeSample[] {
  return episode.samples ?? [episode];
}

/** The episode, with some of its turns removed from the loss mask. */
export function withoutTurns(episode: Episode, isLeftOut: (turn: number) => boolean): Episode {
  const masked = samplesOf(episode).map((sample, index) => {
    const lossMask = sample.lossMask.slice();
    episode.turns.forEach(({ tokens: [start, end], sample: own = 0 }, turn) => {
      if (own === index && isLeftOut(turn)) lossMask.fill(0, start, end);
    });
    return { ...sample, lossMask };
  });
  const { lossMask } = masked.at(-1)!;
  return { ...episode, lossMask, ...(episode.samples ? { samples: masked } : {}) };
}

/** Turns with rewards that count: all but those of the prefix. */
export function countedTurns({ turns, prefix }: Pick<Episode, 'turns' | 'prefix'>): readonly Turn[] {
  return prefix ? turns.slice(prefix.turns) : turns;
}

/** Summed rewards of several turns. */
export type RewardSums = Pick<Turn, 'reward' | 'penalty' | 'rewards'>;

export function sumRewards(turns: readonly RewardSums[]): RewardSums {
  let [reward, penalty] = [0, 0];
  for (const turn of turns) {
    reward += turn.reward;
    penalty += turn.penalty;
  }
  const rewards = sumComponents(turns.map(({ rewards }) => ({ rewards })));
  return { reward, penalty, ...(rewards && { rewards }) };
}

/** Σ turn rewards + Σ penalties. */
export function episodeReturn(episode: Episode): number {
  let sum = 0;
  for (const turn of episode.turns) sum += turn.reward + turn.penalty;
  return sum;
}
