import Type, { type Static } from 'typebox';
import { ADVANTAGES } from '../algorithms/advantages/registry.ts';
import {
  FILTER_LOSS_SCALINGS,
  FILTER_MASSES,
  FILTER_ORDERS,
  FILTER_SCORES,
  FILTER_STRATEGIES,
} from '../algorithms/filters/settings.ts';
import { AGGREGATIONS } from '../algorithms/losses/settings.ts';
import { REWARD_GROUPINGS, REWARD_METHODS } from '../algorithms/rewards/normalization.ts';
import { PROMPT_NAMES } from '../prompts/templates.ts';

/** Scores that need no scoring pass of their own. */
const FILTER_SCORES_HERE = FILTER_SCORES.filter(score => !score.startsWith('entropy'));

const strict = { additionalProperties: false } as const;
/** A section whose keys all have defaults, so that it may be left out. */
const section = { additionalProperties: false, default: {} } as const;

const positive = (value: number) => Type.Integer({ minimum: 1, default: value });
const count = (value: number) => Type.Integer({ minimum: 0, default: value });
const share = (value: number) => Type.Number({ minimum: 0, maximum: 1, default: value });
const notNegative = (value: number) => Type.Number({ minimum: 0, default: value });
const flag = (value: boolean) => Type.Boolean({ default: value });
const text = (value: string) => Type.String({ minLength: 1, default: value });
const orNull = <T extends Type.TSchema>(schema: T) => Type.Union([Type.Null(), schema], { default: null });

/** How tokens are drawn. Temperature 0 is greedy; `top_k` 0 and `top_p` 1 turn those off. */
const sampling = (temperature: number) => ({
  temperature: notNegative(temperature),
  top_k: count(0),
  top_p: Type.Number({ exclusiveMinimum: 0, maximum: 1, default: 1 }),
});

/** Size and place of the policy. `init` is `scratch` or a checkpoint folder in the Hugging Face layout. */
export const PolicySettings = Type.Object(
  {
    init: text('scratch'),
    hidden_size: positive(64),
    layers: positive(2),
    heads: positive(4),
    key_value_heads: orNull(Type.Integer({ minimum: 1 })),
    intermediate_size: positive(160),
    /** Longest sequence, prompts and responses together, in tokens. */
    context: positive(161),
    rope_theta: Type.Number({ exclusiveMinimum: 0, default: 10_000 }),
    /** Standard deviation of fresh weights. */
    initializer_range: Type.Number({ exclusiveMinimum: 0, default: 0.02 }),
    value_head: flag(true),
    runtime: Type.Enum(['onnx'], { default: 'onnx' }),
    /**
     * Worker threads that share a mini-batch, and threads of each. Null takes the machine's cores. Sums are taken in the
     * order of the workers, so their number is part of what a run is.
     */
    workers: orNull(Type.Integer({ minimum: 1 })),
    threads: positive(1),
  },
  section,
);

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

const ServerSettings = Type.Object(
  {
    url: Type.String({ pattern: '^https?://' }),
    weight: Type.Number({ exclusiveMinimum: 0, default: 1 }),
    token: orNull(Type.String()),
  },
  strict,
);

const RolloutSettings = Type.Object(
  {
    /** Groups an iteration collects; the members of a group start from the same seed. */
    env_groups: positive(8),
    group_size: positive(16),
    /** Groups of each tag, summing to `env_groups`; empty: evenly over `tags`. */
    n_groups: Type.Record(Type.String(), Type.Integer({ minimum: 1 }), { default: {} }),
    start_seed: count(10_000),
    prompt: Type.Enum([...PROMPT_NAMES], { default: 'compact' }),
    context_mode: Type.Enum(['full'], { default: 'full' }),
    /** Tokens of one response. */
    response_length: positive(400),
    think: flag(true),
    format_penalty: Type.Number({ maximum: 0, default: -0.1 }),
    /** Only well-formed responses can be sampled. */
    constrained: flag(false),
    /** How long a server that is away is waited for, in seconds. */
    server_patience_s: Type.Number({ exclusiveMinimum: 0, default: 600 }),
    /** Episodes open at once. */
    concurrency: positive(256),
    ...sampling(1),
  },
  section,
);

export const WarmStart = Type.Object(
  {
    /** Who plays the demonstrations: `random` shows the format only, `optimal` the way to win. */
    policy: Type.Enum(['random', 'optimal'], { default: 'random' }),
    episodes: positive(200),
    /** Share of turns that take random actions instead. */
    random_turns: share(0),
    /**
     * Which tokens are learnt: `responses`, or `everything`: the prompts too, so that the policy also learns to
     * foresee what the environment shows next. Of random play it then learns how the world moves, but not what to do.
     */
    learn: Type.Enum(['responses', 'everything'], { default: 'responses' }),
    start_seed: count(1_000_000),
    epochs: positive(8),
    batch_size: positive(16),
    learning_rate: notNegative(2e-3),
    warmup_steps: count(20),
    /** Learning rate at the end of the cosine, as a share of the highest. */
    final_share: share(0.1),
    beta1: share(0.9),
    beta2: share(0.95),
    weight_decay: notNegative(0.1),
    clip_norm: notNegative(1),
  },
  strict,
);

const AlgorithmSettings = Type.Object(
  {
    advantage: Type.Enum([...ADVANTAGES], { default: 'gae' }),
    gamma: share(1),
    /** λ between tokens of a turn, and λ from the end of one turn to the next (`gae`). */
    lambda: share(1),
    turn_lambda: share(1),
    high_level_gamma: share(0.95),
    /** Weight of the step advantage in `gigpo`. */
    step_weight: notNegative(1),
    whiten: flag(true),
    reward_scale: notNegative(1),
    reward_normalization: Type.Object(
      {
        grouping: Type.Enum([...REWARD_GROUPINGS], { default: 'state' }),
        method: Type.Enum([...REWARD_METHODS], { default: 'identity' }),
      },
      section,
    ),
    filter: Type.Object(
      {
        strategy: Type.Enum([...FILTER_STRATEGIES], { default: 'none' }),
        value: notNegative(1),
        score: Type.Enum([...FILTER_SCORES_HERE], { default: 'reward_std' }),
        order: Type.Enum([...FILTER_ORDERS], { default: 'largest' }),
        mass: Type.Enum([...FILTER_MASSES], { default: 'linear' }),
        include_zero: flag(true),
        loss_scaling: Type.Enum([...FILTER_LOSS_SCALINGS], { default: 'none' }),
      },
      section,
    ),
    ppo_epochs: positive(1),
    /** Episodes of one optimiser step. */
    mini_batch_size: positive(32),
    entropy_on: Type.Enum(['all', 'actions'], { default: 'all' }),
  },
  section,
);

const LossConfig = Type.Object(
  {
    policy: Type.Enum(['ppo', 'gspo', 'cispo'], { default: 'ppo' }),
    clip_low: notNegative(0.2),
    clip_high: notNegative(0.28),
    dual_clip: notNegative(3),
    aggregation: Type.Enum([...AGGREGATIONS], { default: 'token_mean' }),
    entropy_coefficient: notNegative(0.001),
    value_coefficient: notNegative(1),
    value_clip: notNegative(0.5),
  },
  section,
);

const OptimizerConfig = Type.Object(
  {
    learning_rate: notNegative(1e-6),
    beta1: share(0.9),
    beta2: share(0.999),
    epsilon: Type.Number({ exclusiveMinimum: 0, default: 1e-8 }),
    weight_decay: notNegative(0.01),
    clip_norm: notNegative(1),
    warmup_iterations: count(0),
    decay: Type.Enum(['constant', 'linear', 'cosine'], { default: 'constant' }),
    final_share: share(0.1),
  },
  section,
);

const EarlyStopping = Type.Object(
  {
    /** Iterations in a row without a single kept group. */
    empty_batches: positive(5),
    /** Stop when the in-group std stays under this share of the first ten iterations' mean … */
    std_share: share(0.1),
    /** … for so many iterations; 0 never. */
    std_steps: count(10),
    /** Stop when validation success stays under this … */
    success_floor: share(0.01),
    /** … for so many validations; 0 never. */
    success_validations: count(5),
  },
  section,
);

/** Everything a run depends on: what YAML configs are validated against. Keys are RAGEN's and verl's where they have one. */
export const RunSettings = Type.Object(
  {
    seed: count(0),
    run: Type.Object(
      {
        folder: text('runs'),
        /** Name of the run's folder; null: the config's file name. */
        name: orNull(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$' })),
      },
      section,
    ),
    servers: Type.Array(ServerSettings, { minItems: 1, default: [{ url: 'http://127.0.0.1:8080' }] }),
    policy: PolicySettings,
    /** Every environment that can be named; `rollout.n_groups` and `train_tags` choose. */
    tags: Type.Record(Type.String(), TagSettings, { default: {} }),
    train_tags: Type.Array(Type.String(), { minItems: 1 }),
    rollout: RolloutSettings,
    warm_start: orNull(WarmStart),
    algorithm: AlgorithmSettings,
    loss: LossConfig,
    optimizer: OptimizerConfig,
    training: Type.Object(
      {
        /** Iterations: collect, then update. */
        steps: count(200),
        validate_every: count(10),
        validate_first: flag(true),
        checkpoint_every: count(10),
        keep_checkpoints: positive(2),
        early_stopping: EarlyStopping,
      },
      section,
    ),
    validation: Type.Object(
      {
        seed: count(123),
        episodes: positive(512),
        /** Leaves out of training whatever starts from a validation level. */
        unseen_levels: flag(false),
        /** Null: the training tags. */
        tags: orNull(Type.Array(Type.String(), { minItems: 1 })),
        ...sampling(0.5),
      },
      section,
    ),
    tracking: Type.Object(
      {
        tensorboard: flag(true),
        /** Training trajectories are written every so many iterations; 0 never. Validation always keeps 20. */
        trajectories_every: count(10),
      },
      section,
    ),
  },
  strict,
);
export type RunSettings = Static<typeof RunSettings>;
