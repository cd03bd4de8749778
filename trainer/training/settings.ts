import Type, { type Static } from 'typebox';
import { ConfigError } from '../../shared/config.ts';
import type { LossSettings } from '../algorithms/losses/settings.ts';

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
    value_head: flag(true),
    runtime: Type.Enum(['onnx'], { default: 'onnx' }),
    /** Worker threads that share a mini-batch, and threads of each. */
    workers: positive(1),
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
    prompt: Type.Enum(['compact', 'chat'], { default: 'compact' }),
    context_mode: Type.Enum(['full'], { default: 'full' }),
    /** Tokens of one response. */
    response_length: positive(400),
    think: flag(true),
    format_penalty: Type.Number({ maximum: 0, default: -0.1 }),
    /** Only well-formed responses can be sampled. */
    constrained: flag(false),
    /** Episodes open at once. */
    concurrency: positive(256),
    ...sampling(1),
  },
  section,
);

const WarmStartSettings = Type.Object(
  {
    /** Who plays the demonstrations: `random` shows the format only, `optimal` the way to win. */
    policy: Type.Enum(['random', 'optimal'], { default: 'random' }),
    episodes: positive(200),
    /** Share of turns that take random actions instead. */
    random_turns: share(0),
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
    advantage: Type.Enum(
      [
        'gae',
        'bi_level_gae',
        'grpo',
        'dr_grpo',
        'rloo',
        'reinforce_pp',
        'reinforce_pp_baseline',
        'gigpo',
        'opo',
        'maxrl',
        'rebn',
      ],
      { default: 'gae' },
    ),
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
        grouping: Type.Enum(['state', 'batch', 'inductive'], { default: 'state' }),
        method: Type.Enum(['identity', 'mean', 'mean_std', 'asym_clip'], { default: 'identity' }),
      },
      section,
    ),
    filter: Type.Object(
      {
        strategy: Type.Enum(['none', 'top_p', 'top_k', 'top_k_abs', 'min_p'], { default: 'none' }),
        value: notNegative(1),
        score: Type.Enum(
          ['reward_std', 'reward_mean', 'reward_sum', 'reward_max', 'entropy', 'entropy_std', 'length'],
          { default: 'reward_std' },
        ),
        order: Type.Enum(['largest', 'smallest'], { default: 'largest' }),
        mass: Type.Enum(['linear', 'softmax'], { default: 'linear' }),
        include_zero: flag(true),
        loss_scaling: Type.Enum(['none', 'linear', 'sqrt'], { default: 'none' }),
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
    aggregation: Type.Enum(['token_mean', 'seq_mean_token_mean', 'seq_mean_token_sum', 'dr_grpo'], {
      default: 'token_mean',
    }),
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
    std_iterations: count(10),
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
    warm_start: orNull(WarmStartSettings),
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

/**
 * What the schema cannot say: names that must exist, sums that must match, parts that exclude each other.
 * @throws ConfigError
 */
export function checkRunSettings(settings: RunSettings, where: string): void {
  const problems: { key: string; where: string; message: string }[] = [];
  const add = (key: string, message: string) => problems.push({ key, where, message });
  const known = Object.keys(settings.tags);
  const tagsOf = (key: string, names: readonly string[]) => {
    for (const name of names) {
      if (!known.includes(name))
        add(key, `no tag is named ${name}; defined under \`tags\`: ${known.join(', ') || 'none'}`);
    }
  };
  tagsOf('train_tags', settings.train_tags);
  tagsOf('validation.tags', settings.validation.tags ?? []);
  const { env_groups, group_size, n_groups } = settings.rollout;
  const named = Object.keys(n_groups);
  if (named.length > 0) {
    for (const name of named) {
      if (!settings.train_tags.includes(name)) add('rollout.n_groups', `${name} is not among train_tags`);
    }
    const sum = Object.values(n_groups).reduce((a, b) => a + b, 0);
    if (sum !== env_groups) add('rollout.n_groups', `sums to ${sum}, but env_groups is ${env_groups}`);
  } else if (env_groups < settings.train_tags.length) {
    add('rollout.env_groups', `${env_groups} groups cannot serve ${settings.train_tags.length} tags`);
  }
  const { advantage, mini_batch_size } = settings.algorithm;
  const needsValues = advantage === 'gae' || advantage === 'bi_level_gae';
  if (needsValues && !settings.policy.value_head) {
    add('algorithm.advantage', `${advantage} needs policy.value_head: true`);
  }
  const needsGroup = ['grpo', 'dr_grpo', 'rloo', 'reinforce_pp_baseline', 'gigpo', 'opo', 'maxrl'];
  if (needsGroup.includes(advantage) && group_size < 2) {
    add(
      'algorithm.advantage',
      `${advantage} compares episodes of a group: rollout.group_size must be at least 2, got ${group_size}`,
    );
  }
  if (mini_batch_size > env_groups * group_size) {
    add(
      'algorithm.mini_batch_size',
      `${mini_batch_size} is more than the ${env_groups * group_size} episodes of an iteration`,
    );
  }
  if (settings.policy.init === 'scratch' && settings.policy.hidden_size % settings.policy.heads !== 0) {
    add(
      'policy.heads',
      `must divide policy.hidden_size ${settings.policy.hidden_size}, got ${settings.policy.heads}`,
    );
  }
  if (problems.length > 0) throw new ConfigError(problems);
}

/** Groups of each training tag in an iteration; an even split gives the first tags the remainder. */
export function groupsPerTag(settings: RunSettings): { readonly tag: string; readonly groups: number }[] {
  const { env_groups, n_groups } = settings.rollout;
  const tags = settings.train_tags;
  if (Object.keys(n_groups).length > 0) {
    return tags.filter(tag => n_groups[tag] > 0).map(tag => ({ tag, groups: n_groups[tag] }));
  }
  const base = Math.floor(env_groups / tags.length);
  return tags.map((tag, i) => ({ tag, groups: base + (i < env_groups % tags.length ? 1 : 0) }));
}

/** The loss as the policy's update takes it. */
export function lossSettings(settings: RunSettings): LossSettings {
  const { loss } = settings;
  return {
    policy: loss.policy,
    clipLow: loss.clip_low,
    clipHigh: loss.clip_high,
    dualClip: loss.dual_clip,
    aggregation: loss.aggregation,
    maxResponseLength: settings.policy.context,
    entropyCoefficient: loss.entropy_coefficient,
    kl: { estimator: 'k3', coefficient: 0 },
    value: {
      coefficient: settings.policy.value_head ? loss.value_coefficient : 0,
      clip: loss.value_clip,
    },
    offPolicy: { kind: 'none' },
  };
}
