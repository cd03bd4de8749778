import type { Json, JsonObject } from '../json.ts';

/**
 * Files of a run folder that the trainer writes and the dashboard reads. Times are ISO 8601, shares run from 0 to 1.
 */
export const RUN_FILES = {
  config: 'config.yaml',
  status: 'status.json',
  /** Lines of the trainer, each after its time. */
  log: 'log.txt',
  metrics: 'metrics.jsonl',
  /** Tables of metrics: one `{ step, name, columns, rows }` a line. */
  tables: 'tables.jsonl',
  groups: 'groups.jsonl',
  summary: 'summary.json',
  trajectories: 'trajectories',
  /** Text of each token id in the trajectories: one `[id, text]` a line. */
  tokens: 'tokens.jsonl',
  evaluations: 'evaluations',
  /** People's tags and note, and the archive mark; the trainer never writes it. */
  annotations: 'annotations.json',
  /** Signed results of an evaluation. */
  result: 'result.json',
} as const;

/** Seconds between two writes of `status.json` when nothing else changes it. */
export const HEARTBEAT_S = 5;
/** A run that says it is running but has been silent for this many seconds may be dead. */
export const SILENT_MS = 6 * HEARTBEAT_S * 1000;

export const RUN_STATES = ['running', 'finished', 'stopped', 'failed'] as const;
export type RunState = (typeof RUN_STATES)[number];

/** A line that the user should see. */
export interface RunNote {
  readonly time: string;
  readonly text: string;
}

/** A line of `log.txt` as a page shows it. */
export interface LogLine {
  /** Its first byte in the file. */
  readonly at: number;
  /** Empty where the line has none. */
  readonly time: string;
  /** Without control characters. */
  readonly text: string;
}

/** Summary of one validation. */
export interface ValidationPoint {
  readonly step: number;
  readonly success: number;
  /** 95 % interval; absent where the validation has several tags. */
  readonly low?: number;
  readonly high?: number;
}

/** `status.json`: how far a run is; always replaced as a whole. */
export interface RunStatus {
  readonly format: 1;
  readonly state: RunState;
  /** `starting`, `warm start`, `training`, `validating`, `done`. */
  readonly stage: string;
  /** Steps of the stage. */
  readonly done: number;
  readonly total: number;
  readonly step: number;
  readonly steps: number;
  /** Seconds of training left; null where unknown. */
  readonly eta_s: number | null;
  readonly pid: number;
  /** When that process started, in clock ticks since boot; null or absent where unknown. */
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
  /** All validations, thinned out when there are many. */
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
  /** Number of policy weights; null until the policy is open. */
  readonly parameters: number | null;
  /** The program that wrote the trajectories; absent for ragen's own runs. */
  readonly format?: string;
  /** Settings that differ from their defaults, as `section.key`; absent in runs of earlier versions. */
  readonly changed?: readonly string[];
  /** Descriptions of the environments' ends by tag and name; absent until the environments are described. */
  readonly ends?: EndMeanings;
  readonly tags: readonly {
    readonly tag: string;
    readonly env_id: string;
    readonly config: JsonObject;
    readonly random: number | null;
    readonly optimum: number | null;
  }[];
}

/** A row of `groups.jsonl`: one for each group of an iteration. */
export interface GroupsRow {
  readonly step: number;
  /** Score and strategy of the rollout filter, e.g. `reward_std`. */
  readonly score: string;
  readonly strategy: string;
  readonly groups: readonly GroupRecord[];
}

export interface GroupRecord {
  readonly group_id: number;
  readonly tag: string;
  readonly seed: number;
  /** Number of episodes in the group, and of those that succeeded. */
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
  /** Seeds the randomness within the episode; absent where it equals `seed`. */
  readonly dynamics_seed?: number;
  /** Changes of the random stream within the episode. */
  readonly reseeds?: readonly { readonly step: number; readonly dynamics_seed: number }[];
  /** Tree rollouts: the node of each turn, as the path from its root. */
  readonly nodes?: readonly string[];
  /** Rewards of sibling continuations before each turn. */
  readonly continuations?: readonly (readonly Pick<TurnRecord, 'reward' | 'penalty' | 'rewards'>[])[];
  /** Number of leading turns copied from an earlier episode. */
  readonly prefix?: { readonly turns: number; readonly kind: string };
  readonly server: string;
  readonly success: boolean;
  readonly terminated: boolean;
  readonly truncated: boolean;
  /** Cause of an end that the environment's rules did not bring. */
  readonly truncation?: 'environment' | 'max_actions' | 'max_turns';
  /** Name of the end: the environment's, or the trainer's `max_actions` or `max_turns`. */
  readonly ended_by?: string;
  /** Tokens that the policy would have read next. */
  readonly following?: readonly number[];
  readonly return: number;
  /** The rollout filter's decision about the group; absent in validations. */
  readonly filter?: { readonly score: number; readonly std: number; readonly kept: boolean };
  readonly turns: readonly TurnRecord[];
  readonly final_state?: string;
  /** The state after the last turn as plain JSON, where it was recorded. */
  readonly final_structured?: Json;
  readonly samples: readonly SampleRecord[];
}

/** An episode to view, from ragen or another program. Fields that another program's file lacks are null. */
export interface EpisodeRecord extends Omit<TrajectoryRecord, 'seed' | 'success' | 'return'> {
  readonly seed: number | null;
  readonly success: boolean | null;
  readonly return: number | null;
  /** File format of another program; absent for ragen's own files. */
  readonly format?: string;
  /** Expected answer of the reward function, where the file has one. */
  readonly expected?: string;
  /** Advantage of the whole episode, where the file has one. */
  readonly advantage?: number;
}

export interface TurnRecord {
  readonly state: string;
  /** The state before the turn as plain JSON, where it was recorded. */
  readonly structured?: Json;
  /** The states between the turn's actions (one fewer than the actions), where they were recorded. */
  readonly between?: readonly Json[];
  readonly actions_left: number;
  readonly actions: readonly Json[];
  /** All actions that were sent, when the environment did not know some of them. */
  readonly sent?: readonly Json[];
  /** The server's key of the state before the turn, where the run asks for it. */
  readonly state_key?: string;
  /** Names of `actions`, where the environment has names. */
  readonly action_names?: readonly string[];
  readonly reward: number;
  readonly penalty: number;
  /** Sums of the environment's named rewards; absent where it has none. */
  readonly rewards?: Readonly<Record<string, number>>;
  readonly info: JsonObject;
  readonly llm_response: string;
  readonly llm_raw_response: string;
  /** Range of its sampled tokens in its sample: [start, end). */
  readonly tokens: readonly [start: number, end: number];
  readonly sample: number;
  readonly finish_reason?: string;
}

/** A token sequence; every list is aligned with `token_ids`. */
export interface SampleRecord {
  readonly token_ids: readonly number[];
  readonly mask: readonly number[];
  readonly log_probs: readonly number[];
  readonly versions: readonly number[];
  /** The next four are 0 where the mask is 0, and absent where unknown. */
  readonly entropies?: readonly number[];
  readonly advantages?: readonly number[];
  readonly values?: readonly number[];
  readonly returns?: readonly number[];
  /** Log-probability under the reference policy, where a KL term uses one; 0 where the mask is 0. */
  readonly reference_log_probs?: readonly number[];
  /** `[id, log-probability, id, …]` of the likeliest tokens in descending order; 0 for tokens that were not sampled. */
  readonly top_logprobs?: readonly (readonly number[] | 0)[];
}
