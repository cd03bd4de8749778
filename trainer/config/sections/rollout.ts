import Type, { type Static } from 'typebox';
import { PROMPT_NAMES } from '../../prompts/templates.ts';
import { BRANCH_CHOICES } from '../../rollout/branching/tree-plan.ts';
import { CONTEXT_MODES } from '../../rollout/context.ts';
import {
  aboveZero,
  choice,
  count,
  flag,
  orNull,
  positive,
  sampling,
  section,
  share,
  strict,
} from './schema.ts';

/** A named environment with its configuration and the caps of a rollout in it. */
export const TagSettings = Type.Object(
  {
    env_id: Type.String({ minLength: 1 }),
    config: Type.Record(Type.String(), Type.Unknown(), { default: {} }),
    max_turn: positive(5),
    max_actions_per_turn: positive(2),
    max_actions_per_traj: positive(10),
    /** The environment's best known and its random policy's success under these caps, for reports; 0 to 1. */
    optimum_success: orNull(Type.Number({ minimum: 0, maximum: 1 })),
    random_success: orNull(Type.Number({ minimum: 0, maximum: 1 })),
  },
  strict,
);
export type TagSettings = Static<typeof TagSettings>;

export const ServerSettings = Type.Object(
  {
    url: Type.String({ pattern: '^https?://' }),
    weight: aboveZero(1),
    /** Weights for single tags, where they are others; 0: none of its groups. */
    tag_weights: Type.Record(Type.String(), Type.Number({ minimum: 0 }), { default: {} }),
    token: orNull(Type.String()),
  },
  // `servers: [http://host:8080]` names servers by their addresses alone.
  { ...strict, shorthand: 'url' },
);

const Curriculum = Type.Object(
  {
    /** Stages follow one another at once, or each turns gradually into the next. */
    blend: choice(['step', 'linear'], 'step'),
    stages: Type.Array(
      Type.Object(
        {
          /** First iteration of the stage, counted from 1. */
          from_step: positive(1),
          /** Shares by tag, in any unit. */
          weights: Type.Record(Type.String(), Type.Number({ minimum: 0 })),
        },
        strict,
      ),
      { minItems: 1 },
    ),
  },
  strict,
);

const RewardHook = Type.Object(
  {
    /** A TypeScript or JavaScript file that exports `reward(episode)`. It runs with the trainer's rights. */
    file: orNull(Type.String({ minLength: 1 })),
    /** A service that is sent each episode with POST. */
    url: orNull(Type.String({ pattern: '^https?://' })),
    /** Variable with the bearer token for `url`. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Its rewards are added to the environment's, or take their place. */
    mode: choice(['add', 'replace'], 'add'),
    /** For one episode. */
    timeout_s: aboveZero(30),
    /** Largest reply of `url`, in bytes. */
    max_bytes: positive(1_048_576),
    /** Heap of the thread that runs `file`, in megabytes. */
    memory_mb: positive(256),
  },
  strict,
);

const AdaptiveCurriculum = Type.Object(
  {
    /** Share of the groups that is split evenly over the tags. */
    floor: share(0.2),
    /** Decay of the moving average of each tag's success. */
    decay: share(0.9),
  },
  strict,
);

const LevelReplay = Type.Object(
  {
    /** Share of an iteration's groups that play levels again. */
    share: share(0.5),
    /** Levels that are remembered at most. */
    capacity: positive(1024),
    /** β of the ranks: near 0 the most promising levels alone, large any. */
    temperature: aboveZero(0.3),
    /** Weight of the time since a level was played, in place of its promise. */
    staleness: share(0.1),
    /** Weight of earlier attempts at a level when it is played again. */
    decay: share(0.5),
  },
  strict,
);

const PrefixSettings = Type.Object(
  {
    /**
     * Turns that are taken over: as the ratios say (`fixed`), as a controller moves them (`adaptive`), or from the end of solved
     * episodes backwards (`reverse`).
     */
    schedule: choice(['adaptive', 'fixed', 'reverse'], 'adaptive'),
    /** Share of an iteration's groups that continue earlier episodes at most. */
    share: share(0.25),
    /** Groups with a lower pass rate get a head start from a success, those with a higher one are handicapped by a failure. */
    low: share(0.3),
    high: share(0.7),
    directions: choice(['both', 'head_start', 'handicap'], 'both'),
    /** Share of the turns that a head start leaves, and that a handicap takes over; at first, where they move. */
    remaining_ratio: share(0.25),
    prefix_ratio: share(0.25),
    /** Most turns of either; null: no limit. */
    remaining_cap: orNull(positive(1)),
    prefix_cap: orNull(positive(1)),
    /** Iterations for which an episode may be continued. */
    max_age: positive(1),
    /** Episodes that are kept at most. */
    pool: positive(256),
    /** Controller of the ratios (`adaptive`). */
    adaptive: Type.Object(
      {
        target: share(0.5),
        alpha: share(0.05),
        deadzone: share(0.03),
        step: share(0.05),
        cooldown: count(5),
        least: share(0.05),
        most: share(0.95),
      },
      section,
    ),
    /** Iterations in which `reverse` goes from the last turns to the whole episode. */
    reverse_over: positive(100),
    /** States that nothing is random after the start, so that continuations may have the same luck. */
    deterministic: flag(false),
  },
  strict,
);

const TreeSettings = Type.Object(
  {
    /** Turns after which a chain branches: drawn before it is played, the same for all, or after uncertain ones. */
    where: choice(BRANCH_CHOICES, 'drawn'),
    /** Trees of a group. */
    roots: positive(4),
    /** Chains after a branch, the one that goes on included. */
    children: Type.Integer({ minimum: 2, default: 2 }),
    /** Turns of `fixed` and `drawn`, from 1; null: any but the last. */
    turns: orNull(Type.Array(Type.Integer({ minimum: 1 }), { minItems: 1, uniqueItems: true })),
    /** Branches of a chain (`drawn`, `entropy`). */
    branches: positive(1),
    /** Generations of branches (`drawn`, `entropy`). */
    depth: positive(1),
    /** Probability of a branch after a turn as uncertain as the first, and its change with the entropy (`entropy`). */
    base: share(0.5),
    weight: Type.Number({ default: 0.2 }),
  },
  strict,
);

const VineSettings = Type.Object(
  {
    /** Continuations of a history, the mean return of which is its value. */
    clones: positive(9),
    /** Turns from one valued history to the next. */
    every: positive(1),
  },
  strict,
);

const Asynchronous = Type.Object(
  {
    /** Iterations that an episode may lie behind the weights it is trained on with; 0 equals synchronous training. */
    max_staleness: count(1),
    /** Responses go on from what older weights computed of their prompt, instead of computing it again. */
    keep_stale_cache: flag(false),
  },
  strict,
);

const ProgramAgent = Type.Object(
  {
    kind: choice(['program'], 'program'),
    /** The program and its arguments, started in the trainer's folder. */
    command: Type.Array(Type.String({ minLength: 1 }), { minItems: 1 }),
    /** For one episode; a program that takes longer is ended. */
    timeout_s: aboveZero(300),
    /** Programs that stay and ask for one episode after the other; 0: one is started per episode. */
    workers: count(0),
    /** Programs at once where one is started per episode. */
    processes: positive(8),
    /** Times that an episode is played before its group is given up. */
    attempts: positive(2),
    /** Calls of the model in one episode at most. */
    max_calls: positive(256),
    /** Prompt and response tokens of all calls of one episode at most. */
    max_tokens: positive(1_000_000),
    /** Variable with the key of a verifier; its reward then replaces the environment's. */
    verifier_key_env: orNull(Type.String({ minLength: 1 })),
  },
  strict,
);

export const RolloutSettings = Type.Object(
  {
    /** Groups an iteration collects; the members of a group start from the same seed. */
    env_groups: positive(8),
    group_size: positive(16),
    /** Groups of each tag, summing to `env_groups`; empty: evenly over `tags`. */
    n_groups: Type.Record(Type.String(), Type.Integer({ minimum: 1 }), { default: {} }),
    /** Shares of the training tags that change as the run goes on, in place of `n_groups`. */
    curriculum: orNull(Curriculum),
    /** Shares of the training tags that follow their success, in place of `n_groups` and `curriculum`. */
    adaptive_curriculum: orNull(AdaptiveCurriculum),
    /** Plays levels again from which much is to be learned: prioritized level replay. */
    level_replay: orNull(LevelReplay),
    /** Some groups continue earlier episodes from where they are neither hopeless nor sure: prefix sampling. */
    prefix: orNull(PrefixSettings),
    /** Episodes branch into trees; `group_size` is the most leaves of a group. */
    tree: orNull(TreeSettings),
    /** Histories are valued by other continuations, which nobody is trained on (`algorithm.advantage: vine`). */
    vine: orNull(VineSettings),
    /** Branches draw other events than the chain they come from, or the same. */
    luck: choice(['fresh', 'same'], 'fresh'),
    /** Equality of states: by the observation, with the actions left, or the server's `state_key`. */
    state_key: choice(['observation', 'observation_and_left', 'state'], 'observation'),
    start_seed: count(10_000),
    /** Rewards for episodes that are over, by a function or a service. */
    reward: orNull(RewardHook),
    /** A program that speaks OpenAI's API plays the episodes; null: the trainer asks the policy by `prompt`. */
    agent: orNull(ProgramAgent),
    prompt: choice(PROMPT_NAMES, 'compact'),
    /** Part of an episode that a turn's prompt shows: all of it, its last turns, or those in one message. */
    context_mode: choice(CONTEXT_MODES, 'full'),
    /** Turns a prompt shows at most, the current one included; 0: no limit. */
    max_context_window: count(0),
    /** Tokens of prompt and response at most: older turns go first. Null: `policy.context`. */
    max_model_len: orNull(Type.Integer({ minimum: 2 })),
    /** Tokens of one response. */
    response_length: positive(400),
    /** A response also ends once it contains one of these, even across tokens; the tokens that complete it are kept. */
    stop_strings: Type.Array(Type.String({ minLength: 1 }), { uniqueItems: true, default: [] }),
    /** Responses begin with `<think>…</think>`. */
    think: flag(false),
    format_penalty: Type.Number({ maximum: 0, default: -0.1 }),
    /** The `compact` prompt also says how many turns are left. */
    show_turns_left: flag(false),
    /** Only well-formed responses can be sampled. */
    constrained: flag(false),
    /** Collecting goes on while the policy learns; null: one waits for the other. */
    asynchronous: orNull(Asynchronous),
    /** A group that takes longer is given up and counted; null: no limit. */
    group_timeout_s: Type.Union([Type.Null(), Type.Number({ exclusiveMinimum: 0 })], { default: 3600 }),
    /** Seconds to wait for a server that is away: for a single one, or for all of several. */
    server_patience_s: aboveZero(600),
    /** Seconds to wait for one of several before its episodes continue elsewhere. */
    failover_s: aboveZero(15),
    /** Episodes open at once. */
    concurrency: positive(256),
    ...sampling(1),
  },
  section,
);
