import type { Json, JsonObject } from '../../shared/json.ts';

/** One turn of an episode: what the policy saw, what it said, what came of it. */
export interface Turn {
  /** Observation text before the turn. */
  readonly state: string;
  readonly actionsLeft: number;
  /** Actions that were executed, as the environment knows them. */
  readonly actions: readonly Json[];
  /** Sum of the executed actions' rewards, without the format penalty. */
  readonly reward: number;
  /** Format penalty of this turn: 0 or negative. */
  readonly penalty: number;
  /** `info` of the last executed action. */
  readonly info: JsonObject;
  /** The response after cleaning, and as generated. */
  readonly response: string;
  readonly rawResponse: string;
  /** Where the sampled tokens stand in the episode's `tokenIds`: [start, end). */
  readonly tokens: readonly [start: number, end: number];
}

/** A finished episode with every token as it was sampled; nothing is ever tokenised twice. */
export interface Episode {
  readonly episodeId: string;
  readonly environmentId: string;
  readonly tag: string;
  readonly groupId: number;
  readonly seed: number;
  readonly server: string;
  readonly turns: readonly Turn[];
  readonly success: boolean;
  readonly terminated: boolean;
  readonly truncated: boolean;
  /** Prompt and response tokens in order. The four arrays below run over them. */
  readonly tokenIds: Int32Array;
  /** 1 on sampled tokens. */
  readonly mask: Uint8Array;
  readonly logProbs: Float32Array;
  readonly values?: Float32Array;
  readonly versions: Int32Array;
}

/** Σ turn rewards + Σ penalties. */
export function episodeReturn(episode: Episode): number {
  let sum = 0;
  for (const turn of episode.turns) sum += turn.reward + turn.penalty;
  return sum;
}
