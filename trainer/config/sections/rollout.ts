import Type, { type Static } from 'typebox';
import { closed } from '../../../shared/schema/type.ts';
import { PROMPT_NAMES } from '../../prompts/templates.ts';
import { BRANCH_CHOICES } from '../../rollout/branching/tree-plan.ts';
import { CONTEXT_MODES } from '../../rollout/context.ts';
import { aboveZero, choice, count, flag, orNull, positive, sampling, section, share } from './schema.ts';

/** A named environment with its configuration and the caps of a rollout in it. */
export const TagSettings = closed({
  /** Id of the environment at the server. */
  env_id: Type.String({ minLength: 1 }),
  /** Configuration of the environment. */
  config: Type.Record(Type.String(), Type.Unknown(), { default: {} }),
  /** Example actions, instead of the environment's. */
  actions: orNull(Type.Array(Type.Unknown(), { minItems: 1, maxItems: 10_000 })),
  /** Reach of numbers without a bound in JSON actions; null: any. */
  number_span: orNull(Type.Number({ exclusiveMinimum: 0 })),
  /** Maximum turns of an episode. */
  max_turn: positive(5),
  /** Maximum actions in one response. */
  max_actions_per_turn: positive(2),
  /** Maximum actions of an episode. */
  max_actions_per_traj: positive(10),
  /** Best known success under these caps, for reports. */
  optimum_success: orNull(Type.Number({ minimum: 0, maximum: 1 })),
  /** Success of the random policy under these caps, for reports. */
  random_success: orNull(Type.Number({ minimum: 0, maximum: 1 })),
});
export type TagSettings = Static<typeof TagSettings>;

export const ServerSettings = closed(
  {
    /** Address of the server. */
    url: Type.String({ pattern: '^https?://' }),
    /** Its relative share of the groups. */
    weight: aboveZero(1),
    /** Other weights for single tags; 0: none. */
    tag_weights: Type.Record(Type.String(), Type.Number({ minimum: 0 }), { default: {} }),
    /** Bearer token. */
    token: orNull(Type.String()),
  },
  // `servers: [http://host:8080]` names servers by their addresses alone.
  { shorthand: 'url' },
);

const Curriculum = closed({
  /** Stages switch at once or gradually. */
  blend: choice(['step', 'linear'], 'step'),
  stages: Type.Array(
    closed({
      /** First iteration of the stage, counted from 1. */
      from_step: positive(1),
      /** Shares by tag, in any unit. */
      weights: Type.Record(Type.String(), Type.Number({ minimum: 0 })),
    }),
    { minItems: 1 },
  ),
});

const RewardHook = closed({
  /** TypeScript or JavaScript file that exports `reward(episode)`. */
  file: orNull(Type.String({ minLength: 1 })),
  /** Service that gets each episode by POST. */
  url: orNull(Type.String({ pattern: '^https?://' })),
  /** Environment variable with the bearer token for `url`. */
  token_env: orNull(Type.String({ minLength: 1 })),
  /** Adds to the environment's rewards, or replaces them. */
  mode: choice(['add', 'replace'], 'add'),
  /** Seconds for one episode. */
  timeout_s: aboveZero(30),
  /** Largest reply of `url`, in bytes. */
  max_bytes: positive(1_048_576),
  /** Heap of the thread that runs `file`, in megabytes. */
  memory_mb: positive(256),
});

const AdaptiveCurriculum = closed({
  /** Share that is split evenly. */
  floor: share(0.2),
  /** Decay of the moving average of each tag's success. */
  decay: share(0.9),
});

const LevelReplay = closed({
  /** Share of an iteration's groups that replay levels. */
  share: share(0.5),
  /** Maximum levels to remember. */
  capacity: positive(1024),
  /** Temperature of the ranks; near 0 only the best levels are replayed. */
  temperature: aboveZero(0.3),
  /** Weight of the time since a level was played, instead of its score. */
  staleness: share(0.1),
  /** Weight of earlier attempts at a level when it is played again. */
  decay: share(0.5),
});

const PrefixSettings = closed({
  /**
   * Replayed turns: by fixed ratios, by ratios that a controller moves, or from the end of solved episodes backwards.
   */
  schedule: choice(['adaptive', 'fixed', 'reverse'], 'adaptive'),
  /** Largest share of an iteration's groups that continue earlier episodes. */
  share: share(0.25),
  /** Groups with a lower pass rate get a head start from a successful episode. */
  low: share(0.3),
  /** Groups with a higher pass rate are handicapped by a failed episode. */
  high: share(0.7),
  /** Head starts, handicaps, or both. */
  directions: choice(['both', 'head_start', 'handicap'], 'both'),
  /** Share of the turns that a head start leaves. */
  remaining_ratio: share(0.25),
  /** Share of the turns that a handicap replays. */
  prefix_ratio: share(0.25),
  /** Maximum turns that a head start leaves; null: no limit. */
  remaining_cap: orNull(positive(1)),
  /** Maximum turns that a handicap replays; null: no limit. */
  prefix_cap: orNull(positive(1)),
  /** Iterations for which an episode can be continued. */
  max_age: positive(1),
  /** Maximum episodes to keep. */
  pool: positive(256),
  /** Controller of the ratios (`adaptive`). */
  adaptive: section({
    /** Target pass rate. */
    target: share(0.5),
    /** Weight of the newest pass rate in the moving average. */
    alpha: share(0.05),
    /** Distance without a change. */
    deadzone: share(0.03),
    /** Change of a ratio at a time. */
    step: share(0.05),
    /** Iterations between changes. */
    cooldown: count(5),
    /** Smallest ratio. */
    least: share(0.05),
    /** Largest ratio. */
    most: share(0.95),
  }),
  /** Iterations until `reverse` covers whole episodes. */
  reverse_over: positive(100),
  /** Declares that only the start of an episode is random. */
  deterministic: flag(false),
});

const TreeSettings = closed({
  /** Turns that branch: drawn before play, the same for all, or uncertain ones. */
  where: choice(BRANCH_CHOICES, 'drawn'),
  /** Trees of a group. */
  roots: positive(4),
  /** Chains after a branch. */
  children: Type.Integer({ minimum: 2, default: 2 }),
  /** Turns of `fixed` and `drawn`, counted from 1; null: any but the last. */
  turns: orNull(Type.Array(Type.Integer({ minimum: 1 }), { minItems: 1, uniqueItems: true })),
  /** Branches of a chain (`drawn`, `entropy`). */
  branches: positive(1),
  /** Generations of branches (`drawn`, `entropy`). */
  depth: positive(1),
  /** Probability of a branch after a turn as uncertain as the first (`entropy`). */
  base: share(0.5),
  /** Change of that probability with the entropy (`entropy`). */
  weight: Type.Number({ default: 0.2 }),
});

const VineSettings = closed({
  /** Continuations of a history. */
  clones: positive(9),
  /** Turns between valued histories. */
  every: positive(1),
});

const Asynchronous = closed({
  /** Maximum iterations between sampling and training; 0: synchronous. */
  max_staleness: count(1),
  /** Continues with the KV cache of older weights. */
  keep_stale_cache: flag(false),
});

const ProgramAgent = closed({
  /** A program. */
  kind: choice(['program'], 'program'),
  /** The program and its arguments, started in the trainer's folder. */
  command: Type.Array(Type.String({ minLength: 1 }), { minItems: 1 }),
  /** Seconds for one episode. */
  timeout_s: aboveZero(300),
  /** Long-running programs; 0: one program per episode. */
  workers: count(0),
  /** Programs at once. */
  processes: positive(8),
  /** Attempts at an episode before its group is dropped. */
  attempts: positive(2),
  /** Maximum model calls in one episode. */
  max_calls: positive(256),
  /** Maximum tokens of all calls of one episode. */
  max_tokens: positive(1_000_000),
  /** Environment variable with the key of a verifier that reports the reward. */
  verifier_key_env: orNull(Type.String({ minLength: 1 })),
});

export const RolloutSettings = section({
  /** Groups of an iteration, each from one seed. */
  env_groups: positive(8),
  /** Episodes of a group. */
  group_size: positive(16),
  /** Groups of each tag; empty: evenly. */
  n_groups: Type.Record(Type.String(), Type.Integer({ minimum: 1 }), { default: {} }),
  /** Shares of the tags that change during the run. */
  curriculum: orNull(Curriculum),
  /** Shares of the tags that follow their success. */
  adaptive_curriculum: orNull(AdaptiveCurriculum),
  /** Prioritized level replay. */
  level_replay: orNull(LevelReplay),
  /** Prefix sampling: some groups continue earlier episodes. */
  prefix: orNull(PrefixSettings),
  /** Episodes branch into trees of at most `group_size` leaves. */
  tree: orNull(TreeSettings),
  /** Values histories by extra continuations. */
  vine: orNull(VineSettings),
  /** Random stream of branches. */
  luck: choice(['fresh', 'same'], 'fresh'),
  /** Identity of a state: the observation, also the actions left, or the server's `state_key`. */
  state_key: choice(['observation', 'observation_and_left', 'state'], 'observation'),
  /** First seed of the training levels. */
  start_seed: count(10_000),
  /** Rewards finished episodes by a function or a service. */
  reward: orNull(RewardHook),
  /** A program that speaks OpenAI's API plays the episodes; null: none. */
  agent: orNull(ProgramAgent),
  /** Form of prompts; `compact`: for small policies. */
  prompt: choice(PROMPT_NAMES, 'compact'),
  /** Turns in a prompt: all, the last ones, or those in one message. */
  context_mode: choice(CONTEXT_MODES, 'full'),
  /** Maximum turns in a prompt, the current one included; 0: no limit. */
  max_context_window: count(0),
  /** Maximum tokens of prompt and response; null: `policy.context`. */
  max_model_len: orNull(Type.Integer({ minimum: 2 })),
  /** Maximum tokens of one response. */
  response_length: positive(400),
  /** Strings that end a response. */
  stop_strings: Type.Array(Type.String({ minLength: 1 }), { uniqueItems: true, default: [] }),
  /** Responses begin with `<think>…</think>`. */
  think: flag(false),
  /** Reward of a response in a wrong format. */
  format_penalty: Type.Number({ maximum: 0, default: -0.1 }),
  /** The `compact` prompt shows the turns left. */
  show_turns_left: flag(false),
  /** Only well-formed responses with listed actions, or JSON of their schema, can be sampled. */
  constrained: flag(false),
  /** Collects while the policy learns; null: they alternate. */
  asynchronous: orNull(Asynchronous),
  /** Seconds until a group is dropped; null: no limit. */
  group_timeout_s: Type.Union([Type.Null(), Type.Number({ exclusiveMinimum: 0 })], { default: 3600 }),
  /** Seconds to wait for unreachable servers. */
  server_patience_s: aboveZero(600),
  /** Seconds until episodes move to another server; an iteration then does without an absent service. */
  failover_s: aboveZero(15),
  /** Maximum open episodes. */
  concurrency: positive(256),
  ...sampling(1),
});
