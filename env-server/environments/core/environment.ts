import type { TObject, TSchema } from 'typebox';
import type { Json, JsonObject } from '../../../shared/json.ts';
import type { Random } from '../../../shared/random.ts';
import { ANY_OBJECT, type ObservationSpaces, type Space } from './spaces.ts';

/**
 * The contract of an environment: functions over plain data.
 *
 * - **State is immutable JSON.** `step` returns a new state (unchanged parts may be shared) and never
 *   alters the one it was given. A snapshot is therefore a reference, a clone is free, and replay, drain
 *   and worker transport are one mechanism for every environment.
 * - **Randomness comes from `rng` only.** The session hands it over, seeded at reset; its state is saved
 *   with the environment's.
 * - **State holds all it needs**, the parts of the configuration that matter included.
 * - **Unknown actions change nothing**: `info.action_is_valid` is false and the reward is what the
 *   environment's rules say. `step` throws only for faults, never for an action.
 */
export interface Environment<Config = JsonObject, State = Json> {
  readonly spec: EnvironmentSpec;

  /**
   * Instruction, legend and actions that players read under this configuration. It is made from the effective
   * configuration, so a custom symbol vocabulary reaches the prompt.
   */
  describe(config: Config): Description;

  /**
   * The observation space under this configuration; by default `spec.observationSpace` and any object. A level pinned
   * by reset options may have another size.
   */
  observationSpaces?(config: Config): ObservationSpaces;

  /**
   * Checks rules between configuration keys that the schema cannot express. `resolveConfig` calls it.
   * @throws InvalidConfig
   */
  checkConfig?(config: Config): void;

  /**
   * The first state of an episode.
   * @param options pins the start (a level is data); validated against `spec.optionsSchema` before the call
   * @throws InvalidOptions when the options are well-formed but cannot make a level
   */
  reset(config: Config, rng: Random, options: JsonObject): State | Promise<State>;

  /**
   * Identity of a level: the same text for all first states that count as one level, such as a board and its mirror
   * images. Splits depend on it where the environment has them, and clients see a hash of it as `level_id`. Absent
   * where the first observation identifies the level.
   */
  levelKey?(state: State): string;

  step(state: State, action: Json, rng: Random): Transition<State> | Promise<Transition<State>>;

  /** The state as its player sees it. `structured` gives plain JSON, every other format text. */
  observe(state: State, format: ObservationFormat): Json;

  /** The legal actions, for environments where they depend on the state. */
  validActions?(state: State): readonly Json[];

  /**
   * Kinds of actions as tools with named arguments, for players that call tools; `step` accepts each of them as an
   * action too.
   */
  readonly tools?: readonly ActionTool[];

  /** Steps after which an episode in this state is truncated, where that depends on the level. */
  episodeSteps?(state: State): number;

  /** The state as a picture. */
  render?(state: State): Picture;

  /** Ready-made policies by name; `optimal` or `oracle` where the field has one. */
  readonly references?: { readonly [name: string]: ReferencePolicy<State> };

  /** State of the external programs and data it needs; logged at startup and shown with its description. */
  condition?(): Promise<Condition>;

  /**
   * Runs a reset or step, with everything that follows from it, for the owner of a session; for an environment that
   * divides a scarce resource among owners.
   */
  playFor?<T>(owner: string, play: () => T): T;

  /** Releases what the environment holds outside its states (a process, a connection). */
  dispose?(state: State): void | Promise<void>;
}

/** Environment with its types erased, as the registry, sessions and wrappers hold it. */
export type AnyEnvironment = Environment<JsonObject, Json>;

/** The spaces of observations under a configuration. */
export function observationSpaces(environment: AnyEnvironment, config: JsonObject): ObservationSpaces {
  return (
    environment.observationSpaces?.(config) ?? {
      text: environment.spec.observationSpace,
      structured: ANY_OBJECT,
    }
  );
}

export interface Condition extends JsonObject {
  /** One sentence, e.g. which isolation is in force. */
  readonly summary: string;
}

export interface Transition<State> {
  readonly state: State;
  readonly reward: number;
  /** True if the episode ended by the environment's rules. */
  readonly terminated: boolean;
  /** True if the environment itself truncated the episode; the session handles `max_episode_steps`. */
  readonly truncated?: boolean;
  readonly info: StepInfo;
  /**
   * True if the step ended an episode and this is the first state of the next one; earlier states are no longer needed.
   */
  readonly restarted?: true;
}

/**
 * `info` of every step; environments add further keys. `rewards`, if present, is an object of finite numbers: named
 * parts of the step's value next to its one reward, each present at every step (0 where nothing was earned).
 * `ended_by`, only in steps that end the episode, is one of the names in `spec.ends`, or `time_limit`.
 */
export interface StepInfo extends JsonObject {
  readonly success: boolean;
  readonly action_is_valid: boolean;
  /** True if the state changed. */
  readonly action_is_effective: boolean;
}

/**
 * Info of a step.
 * @param end the episode's end, where the step is its last
 * @param more the environment's own fields
 */
export const stepInfo = (
  success: boolean,
  valid: boolean,
  effective: boolean,
  end?: string | false | null,
  more: JsonObject = {},
): StepInfo => ({
  success,
  action_is_valid: valid,
  action_is_effective: effective,
  ...more,
  ...(end && { ended_by: end }),
});

/**
 * `text` is the environment's default text form; the others only where `spec.observationFormats` lists them. An `image`
 * is text too: a PNG as `data:` URL. Every session has `parts`, text and pictures for vision models; it is made from
 * the others (see `parts.ts`), so environments need not know it.
 */
export type ObservationFormat = 'text' | 'grid' | 'coord' | 'grid_coord' | 'image' | 'structured' | 'parts';

/** True for formats that paint a picture, which takes as long as hundreds of steps. */
export const isPainted = (format: ObservationFormat): boolean => format === 'image' || format === 'parts';

/** `[namespace/]Name-vN`. */
export const ENVIRONMENT_ID = /^(?:[A-Za-z0-9_.-]+\/)?[A-Za-z0-9_.-]+-v\d+$/;

export interface EnvironmentSpec {
  /** `[namespace/]Name-vN`; changed behavior requires a new version. */
  readonly id: string;
  /** Aliases, which the list of environments leaves out. */
  readonly aliases?: readonly string[];
  readonly title: string;
  /** Markdown: the rules, in our own words. */
  readonly description: string;
  readonly tags: readonly string[];
  readonly configSchema: TSchema;
  readonly optionsSchema: TSchema;
  /** Named configurations, e.g. `simple`, `larger`: each a partial config. */
  readonly presets?: { readonly [name: string]: JsonObject };
  /** Space of text observations under any configuration; `observationSpaces` is narrower. */
  readonly observationSpace: Space;
  readonly actionSpace: Space;
  readonly observationFormats: readonly ObservationFormat[];
  /** Smallest and largest reward of a step; ±Infinity where unbounded. */
  readonly rewardRange: readonly [number, number];
  /** Mean return at which the environment counts as solved. */
  readonly rewardThreshold?: number;
  /** Best known mean success under the default configuration, with its source. */
  readonly knownOptimum?: { readonly success: number; readonly source: string };
  /** Steps after which the session truncates; `max_steps` of the effective configuration where it has that key. */
  readonly maxEpisodeSteps: number;
  /** Ends of an episode by the environment's rules, for `info.ended_by`. */
  readonly ends?: Ends;
  /** Steps after which the wrapper `time_limit` truncates, regardless of the configuration. */
  readonly timeLimit?: number;
  readonly exampleAction: Json;
  readonly history: readonly { readonly version: number; readonly change: string }[];
  /**
   * True if a step that ends an episode also begins the next one, so the session continues; the environment counts its
   * steps itself.
   */
  readonly autoReset?: boolean;
  /** False for an environment without randomness, which rejects a seed. */
  readonly seedable?: boolean;
}

export interface Description {
  /** The task and how to win, in one short paragraph. */
  readonly instruction: string;
  /** Symbol → meaning, where the observation consists of symbols. */
  readonly legend?: readonly { readonly symbol: string; readonly meaning: string }[];
  /** Names of the actions in id order for a discrete action space. */
  readonly actions?: readonly string[];
  /** Syntax of an action where the space is free text, e.g. `search[query]`. */
  readonly actionFormat?: string;
  /** Example actions where the space is text or JSON; there are others. */
  readonly exampleActions?: readonly Json[];
  /** All words of observations and actions, for word-level tokenizers; absent for free text. */
  readonly vocabulary?: readonly string[];
}

/** One kind of action as a tool. */
export interface ActionTool {
  /** Lower case with `_`; not a name that every environment has (see `transports/mcp/tools.ts`). */
  readonly name: string;
  readonly description: string;
  /** JSON Schema of the arguments, a closed object. */
  readonly parameters: TObject;
  /** Action of a call; the environment decides whether it is currently valid. */
  action(given: { readonly [name: string]: string }): Json;
}

export interface ReferencePolicy<State> {
  readonly title: string;
  /**
   * The next actions from this state, at most `count`, as if nothing random interfered.
   * An empty list means that there is nothing useful left to do.
   * @param rng for policies that draw at random; never the session's own generator, because that would change its future
   * @param turns how many plans the player may still ask for, this one included, and carries out unseen: where chance
   * interferes, fewer actions than `count` can then be better. Absent: as many as it likes.
   */
  plan(state: State, count: number, rng: Random, turns?: number): readonly Json[] | Promise<readonly Json[]>;
}

/** RGBA, 8 bits a channel, rows from the top: `data.length === 4 * width * height`. */
export interface Picture {
  readonly width: number;
  readonly height: number;
  readonly data: Uint8Array;
}

/** A fault at a JSON pointer. */
class FaultAt extends Error {
  readonly pointer: string;
  constructor(pointer: string, message: string) {
    super(message);
    this.pointer = pointer;
  }
}

/** A configuration that fits the schema but cannot be played; answered with 422. The pointer is one into it. */
export class InvalidConfig extends FaultAt {
  override readonly name = 'InvalidConfig';
}

/** Options that fit the schema but cannot make a level; answered with 422. The pointer is one into the options. */
export class InvalidOptions extends FaultAt {
  override readonly name = 'InvalidOptions';
}

/** Ends of an episode, by the name that `info.ended_by` gives them: each a sentence in the past tense, without its full stop. */
export interface Ends {
  readonly [name: string]: string;
}

/** The end of an episode that a step limit cut short: the environment's, the session's or a wrapper's. */
export const TIME_LIMIT = 'time_limit';

/** Info of a step that a step limit makes the last one of its episode. */
export const withTimeLimit = <Info extends object>(info: Info): Info & { readonly ended_by: string } => ({
  ...info,
  ended_by: TIME_LIMIT,
});

/** Ends of an environment that takes one answer. */
export const RIGHT_OR_WRONG = {
  right_answer: 'Gave the right answer',
  wrong_answer: 'Gave a wrong answer',
} as const satisfies Ends;

export const rightOrWrong = (right: boolean): keyof typeof RIGHT_OR_WRONG =>
  right ? 'right_answer' : 'wrong_answer';

/** All ends that an environment's episodes may have, `time_limit` last, in its own words where it has some. */
export function endsOf({ ends }: { readonly ends?: Ends }): Ends {
  const text = ends?.[TIME_LIMIT] ?? 'Reached the step limit';
  return { ...ends, [TIME_LIMIT]: text };
}
