import Type, { type Static } from 'typebox';
import { DEFAULT_EARLY_STOPPING as STOPPING } from '../../algorithms/filters/early-stopping.ts';
import { WEIGHT_DTYPES } from '../../models/files/stored-numbers.ts';
import {
  aboveZero,
  choice,
  count,
  flag,
  notNegative,
  orNull,
  positive,
  sampling,
  section,
  share,
  strict,
  text,
} from './schema.ts';

const DEMONSTRATORS = ['random', 'optimal', 'oracle', 'heuristic'] as const;

export const WarmStart = Type.Object(
  {
    /** JSON Lines files with conversations to learn from; where there are any, nobody plays demonstrations. */
    files: Type.Array(Type.String({ minLength: 1 }), { default: [] }),
    /** Share of the examples that is held back to measure the loss on. */
    validation_share: share(0),
    /**
     * Who plays the demonstrations: `random` shows the format only, `optimal` the way to win; where an environment has no
     * best player it has an `oracle`, who knows the answer, or a `heuristic`.
     */
    policy: choice(DEMONSTRATORS, 'random'),
    /** Other players for some tags. */
    policies: Type.Record(Type.String(), Type.Enum([...DEMONSTRATORS]), { default: {} }),
    episodes: positive(200),
    /** Share of turns that take random actions instead, so that more of the world is seen; they are not imitated. */
    random_turns: share(0),
    /** Random turns are imitated too: the policy learns to play with mistakes. */
    learn_random_turns: flag(false),
    /**
     * Which tokens are learned: `responses`, or `everything`: the prompts too, so that the policy also learns to
     * foresee what the environment shows next. Of random play it then learns how the world moves, but not what to do.
     */
    learn: choice(['responses', 'everything'], 'responses'),
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
export type WarmStart = Static<typeof WarmStart>;

const EarlyStopping = Type.Object(
  {
    /** Iterations in a row without a single kept group; 0 never. */
    empty_batches: count(STOPPING.emptyBatches),
    /** Stop when the in-group std stays under this share of the first ten iterations' mean … */
    std_share: share(STOPPING.stdShare),
    /** … for so many iterations; 0 never. */
    std_steps: count(STOPPING.stdSteps),
    /** Stop when validation success stays under this … */
    success_floor: share(STOPPING.successFloor),
    /** … for so many validations; 0 never. */
    success_validations: count(STOPPING.successValidations),
    /** Stop after so many validations in a row in which the monitored metric did not improve … */
    patience: count(0),
    /** … by more than this. */
    min_delta: notNegative(0),
    /** Stop when the monitored metric is as good as this; null never. */
    target: orNull(Type.Number()),
  },
  section,
);

export const TrainingSettings = Type.Object(
  {
    /** Iterations: collect, then update. */
    steps: count(200),
    /** Iteration after which the run ends with a validation, long before `steps` if need be, to go on later; null: none. */
    stop_after: orNull(Type.Integer({ minimum: 1 })),
    /** Seconds after which the run ends with a validation, those of warm start and validations included; null: no limit. */
    max_seconds: orNull(aboveZero(1)),
    /** The run ends with the first iteration that passes one: actions that servers carried out, and tokens that were sampled. */
    max_env_steps: orNull(positive(1)),
    max_sampled_tokens: orNull(positive(1)),
    validate_every: count(10),
    validate_first: flag(true),
    checkpoint_every: count(10),
    keep_checkpoints: positive(2),
    /** Type of the weights in checkpoints; bfloat16 takes half the room, and a resumed run continues from rounded weights. */
    checkpoint_dtype: choice(WEIGHT_DTYPES, 'float32'),
    /** The validation metric of `keep_best` and of `early_stopping.patience` and `target`. */
    monitor: Type.Object(
      {
        metric: Type.String({ pattern: '^val-env/', default: 'val-env/success' }),
        /** `max` where more is better, `min` where less is. */
        mode: choice(['max', 'min'], 'max'),
      },
      section,
    ),
    /** Also keeps the checkpoint with the best monitored metric, as `checkpoints/best`. */
    keep_best: flag(false),
    early_stopping: EarlyStopping,
  },
  section,
);

/** A further set of validation episodes; what is null is as in `validation`. */
const ValidationSet = Type.Object(
  {
    tags: orNull(Type.Array(Type.String(), { minItems: 1 })),
    /** First seed of its levels and its draws. */
    seed: orNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
    episodes: orNull(Type.Integer({ minimum: 1 })),
    temperature: orNull(Type.Number({ minimum: 0 })),
    top_k: orNull(Type.Integer({ minimum: 0 })),
    top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
  },
  strict,
);

export const ValidationSettings = Type.Object(
  {
    seed: count(123),
    episodes: positive(512),
    /** Leaves out of training all episodes on levels that a validation plays, mirror images included where the environment says so. */
    unseen_levels: flag(false),
    /** Null: the training tags. */
    tags: orNull(Type.Array(Type.String(), { minItems: 1 })),
    ...sampling(0.5),
    /** Further sets by name, each with metrics of its name: other levels, other seeds, other temperatures. */
    sets: Type.Record(Type.String({ pattern: '^[A-Za-z0-9_-]+$' }), ValidationSet, { default: {} }),
  },
  section,
);

export const TrackingSettings = Type.Object(
  {
    tensorboard: flag(true),
    /** Floating-point operations that the machine can do, in 10¹² per second: what `perf/mfu` is a share of; null: no such metric. */
    peak_tflops: orNull(aboveZero(1)),
    /** An offline run of Weights & Biases in the run's folder, for `wandb sync`. */
    wandb: orNull(
      Type.Object(
        {
          project: text('ragen'),
          entity: orNull(Type.String({ minLength: 1 })),
          group: orNull(Type.String({ minLength: 1 })),
          tags: Type.Array(Type.String(), { default: [] }),
        },
        strict,
      ),
    ),
    /** An MLflow tracking server. */
    mlflow: orNull(
      Type.Object(
        {
          url: Type.String({ pattern: '^https?://' }),
          experiment: text('ragen'),
          /** Environment variable that holds the server's token. */
          token_env: orNull(Type.String({ minLength: 1 })),
        },
        strict,
      ),
    ),
    /** Training trajectories are written every so many iterations; 0 never. Validation always keeps 20. */
    trajectories_every: count(10),
  },
  section,
);
