import type { Json, JsonObject } from '../json.ts';

/** Files of a run folder that the trainer writes and the dashboard reads; times are ISO 8601, shares run from 0 to 1. */
export const RUN_FILES = {
  config: 'config.yaml',
  status: 'status.json',
  metrics: 'metrics.jsonl',
  /** Tables of metrics: `{ step, name, columns, rows }` a line. */
  tables: 'tables.jsonl',
  groups: 'groups.jsonl',
  summary: 'summary.json',
  trajectories: 'trajectories',
  /** Text of each token id in trajectories: `[id, text]` a line. */
  tokens: 'tokens.jsonl',
  evaluations: 'evaluations',
  /** Tags and a note of people, and the mark of an archived run; the trainer never writes it. */
  annotations: 'annotations.json',
  /** Signed results of an evaluation. */
  result: 'result.json',
} as const;

/** Seconds between two writes of `status.json` when nothing else changes it. */
export const HEARTBEAT_S = 5;
/** A run that says it is running, but has been silent for so long, may be dead. */
export const SILENT_MS = 6 * HEARTBEAT_S * 1000;

export const RUN_STATES = ['running', 'finished', 'stopped', 'failed'] as const;
export type RunState = (typeof RUN_STATES)[number];

/** A line that the user should know. */
export interface RunNote {
  readonly time: string;
  readonly text: string;
}

/** One validation, in short. */
export interface ValidationPoint {
  readonly step: number;
  readonly success: number;
  /** 95 % interval; absent where the validation has several tags. */
  readonly low?: number;
  readonly high?: number;
}

/** `status.json`: how far a run is, replaced as a whole. */
export interface RunStatus {
  readonly format: 1;
  readonly state: RunState;
  /** `starting`, `warm start`, `training`, `validating`, `done`. */
  readonly stage: string;
  /** Units of the stage. */
  readonly done: number;
  readonly total: number;
  readonly step: number;
  readonly steps: number;
  /** Seconds that are left of the training; null where nobody knows yet. */
  readonly eta_s: number | null;
  readonly pid: number;
  /** When that process started, in clock ticks since the machine booted; null or absent where nobody knows. */
  readonly pid_start?: string | null;
  readonly host: string;
  readonly started_at: string;
  readonly updated_at: string;
  /** Seconds of training, over all sessions of the run. */
  readonly seconds: number;
  readonly last_error: RunNote | null;
  /** The latest notes, oldest first. */
  readonly notes: readonly RunNote[];
  readonly run: RunDescription;
  /** All validations, thinned out where there are many. */
  readonly validations: readonly ValidationPoint[];
}

/** Meaning of each `ended_by`, by tag. */
export interface EndMeanings {
  readonly [tag: string]: { readonly [name: string]: string };
}

/** Description of a run in a table of runs. */
export interface RunDescription {
  readonly name: string;
  readonly recipe: readonly string[];
  readonly advantage: string;
  readonly seed: number;
  readonly model: string;
  /** Weights of the policy; null until it is open. */
  readonly parameters: number | null;
  /** Other program that wrote the trajectories; absent for runs of ragen. */
  readonly format?: string;
  /** Settings that differ from their defaults, as `section.key`; absent in runs of earlier versions. */
  readonly changed?: readonly string[];
  /** Ends of the environments' episodes in words, by tag and name; absent until the environments are described. */
  readonly ends?: EndMeanings;
  readonly tags: readonly {
    readonly tag: string;
    readonly env_id: string;
    readonly config: JsonObject;
    readonly random: number | null;
    readonly optimum: number | null;
  }[];
}

/** A row of `groups.jsonl`: every group of an iteration. */
export interface GroupsRow {
  readonly step: number;
  /** Name of the filter's score, e.g. `reward_std`, and its strategy. */
  readonly score: string;
  readonly strategy: string;
  readonly groups: readonly GroupRecord[];
}

export interface GroupRecord {
  readonly group_id: number;
  readonly tag: string;
  readonly seed: number;
  /** Episodes of the group, and those that succeeded. */
  readonly size: number;
  readonly successes: number;
  /** Mean and unbiased standard deviation of the returns. */
  readonly mean: number;
  readonly std: number;
  /** Score that the rollout filter used. */
  readonly score: number;
  readonly kept: boolean;
}

/** A line of a trajectory file. */
export interface TrajectoryRecord {
  readonly episode_id: string;
  readonly env_id: string;
  readonly tag: string;
  readonly group_id: number;
  readonly member: number;
  readonly seed: number;
  /** Seeds what happens in it besides its level; absent where `seed` does. */
  readonly dynamics_seed?: number;
  /** Changes of the random stream in mid-episode. */
  readonly reseeds?: readonly { readonly step: number; readonly dynamics_seed: number }[];
  /** Tree rollouts: the node of each turn, as the path from its root. */
  readonly nodes?: readonly string[];
  /** Rewards of other continuations from before each turn on. */
  readonly continuations?: readonly (readonly Pick<TurnRecord, 'reward' | 'penalty' | 'rewards'>[])[];
  /** First turns that were taken over from an earlier episode. */
  readonly prefix?: { readonly turns: number; readonly kind: string };
  readonly server: string;
  readonly success: boolean;
  readonly terminated: boolean;
  readonly truncated: boolean;
  /** Cause of the end where the rules of the environment did not end it. */
  readonly truncation?: 'environment' | 'max_actions' | 'max_turns';
  /** Name of its end: the environment's, or `max_actions` or `max_turns` of the trainer. */
  readonly ended_by?: string;
  /** Tokens that the policy would have read next, had it gone on. */
  readonly following?: readonly number[];
  readonly return: number;
  /** Decision of the rollout filter about the group; absent in validations. */
  readonly filter?: { readonly score: number; readonly std: number; readonly kept: boolean };
  readonly turns: readonly TurnRecord[];
  readonly final_state?: string;
  /** The state after the last turn as plain JSON, where it was recorded. */
  readonly final_structured?: Json;
  readonly samples: readonly SampleRecord[];
}

/** An episode to look at: ragen's, or one of another program, which has null for what its file does not say. */
export interface EpisodeRecord extends Omit<TrajectoryRecord, 'seed' | 'success' | 'return'> {
  readonly seed: number | null;
  readonly success: boolean | null;
  readonly return: number | null;
  /** Format of another program that it was read from; absent for ragen's own. */
  readonly format?: string;
  /** Answer that the reward function expected, where the file has it. */
  readonly expected?: string;
  /** Advantage of all its tokens, where the file has one for the episode. */
  readonly advantage?: number;
}

export interface TurnRecord {
  readonly state: string;
  /** The state before the turn as plain JSON, where it was recorded. */
  readonly structured?: Json;
  /** The states between its actions, one fewer than those, where they were recorded. */
  readonly between?: readonly Json[];
  readonly actions_left: number;
  readonly actions: readonly Json[];
  /** All actions that were sent, where the environment did not know some. */
  readonly sent?: readonly Json[];
  /** The server's name of the state before the turn, where the run asks for it. */
  readonly state_key?: string;
  /** Names of `actions`, where the environment has some. */
  readonly action_names?: readonly string[];
  readonly reward: number;
  readonly penalty: number;
  /** Sums of the named rewards of the environment; absent where it has none. */
  readonly rewards?: Readonly<Record<string, number>>;
  readonly info: JsonObject;
  readonly llm_response: string;
  readonly llm_raw_response: string;
  /** Range of its sampled tokens in its sample: [start, end). */
  readonly tokens: readonly [start: number, end: number];
  readonly sample: number;
  readonly finish_reason?: string;
}

/** A token sequence; all lists run over `token_ids`. */
export interface SampleRecord {
  readonly token_ids: readonly number[];
  readonly mask: readonly number[];
  readonly log_probs: readonly number[];
  readonly versions: readonly number[];
  /** The next four are 0 where the mask is, and absent where they are not known. */
  readonly entropies?: readonly number[];
  readonly advantages?: readonly number[];
  readonly values?: readonly number[];
  readonly returns?: readonly number[];
  /** Under the reference policy, where a KL term compares with one; 0 where the mask is. */
  readonly reference_log_probs?: readonly number[];
  /** `[id, log-probability, id, …]` of the likeliest tokens, the likeliest first; 0 for tokens that were not sampled. */
  readonly top_logprobs?: readonly (readonly number[] | 0)[];
}
