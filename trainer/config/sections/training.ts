import Type, { type Static } from 'typebox';
import { closed } from '../../../shared/schema/type.ts';
import { DEFAULT_EARLY_STOPPING as STOPPING } from '../../algorithms/filters/early-stopping.ts';
import { WEIGHT_DTYPES } from '../../models/files/stored-numbers.ts';
import { Muon } from './algorithm.ts';
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
  text,
} from './schema.ts';

const DEMONSTRATORS = ['random', 'optimal', 'oracle', 'heuristic'] as const;

export const WarmStart = closed({
  /** JSON Lines files with conversations, instead of demonstrations. */
  files: Type.Array(Type.String({ minLength: 1 }), { default: [] }),
  /** Share of held-out examples. */
  validation_share: share(0),
  /** Player of the demonstrations. */
  policy: choice(DEMONSTRATORS, 'random'),
  /** Other players for some tags. */
  policies: Type.Record(Type.String(), Type.Enum([...DEMONSTRATORS]), { default: {} }),
  /** Demonstrations to play. */
  episodes: positive(200),
  /** Share of turns with random actions, which are excluded from the loss. */
  random_turns: share(0),
  /** Includes random turns in the loss. */
  learn_random_turns: flag(false),
  /** Tokens in the loss; `everything` includes prompts. */
  learn: choice(['responses', 'everything'], 'responses'),
  /** First seed of the demonstrations' levels. */
  start_seed: count(1_000_000),
  /** Passes over the examples. */
  epochs: positive(8),
  /** Examples of one optimizer step. */
  batch_size: positive(16),
  /** Peak learning rate. */
  learning_rate: notNegative(2e-3),
  /** Optimizer steps of linear warm-up. */
  warmup_steps: count(20),
  /** Final learning rate of the cosine schedule, as a share of the peak. */
  final_share: share(0.1),
  /** β₁ of AdamW. */
  beta1: share(0.9),
  /** β₂ of AdamW. */
  beta2: share(0.95),
  /** Weight decay of AdamW. */
  weight_decay: notNegative(0.1),
  /** Largest global gradient norm; 0: no limit. */
  clip_norm: notNegative(1),
  /** As `optimizer.muon`. */
  muon: orNull(Muon),
});
export type WarmStart = Static<typeof WarmStart>;

const EarlyStopping = section({
  /** Iterations without a kept group until the run stops; 0: never. */
  empty_batches: count(STOPPING.emptyBatches),
  /** Stops when the deviation within groups stays below this share of the first ten iterations' … */
  std_share: share(STOPPING.stdShare),
  /** … for this many iterations; 0: never. */
  std_steps: count(STOPPING.stdSteps),
  /** Stops when validation success stays below this, and the return does not rise … */
  success_floor: share(STOPPING.successFloor),
  /** … for this many validations; 0: never. */
  success_validations: count(STOPPING.successValidations),
  /** Stops after this many validations without an improvement … */
  patience: count(0),
  /** … by more than this; `patience` 0: never. */
  min_delta: notNegative(0),
  /** Stops when the monitored metric reaches this; null: never. */
  target: orNull(Type.Number()),
});

export const TrainingSettings = section({
  /** Iterations: collect, then update. */
  steps: count(200),
  /** Iteration after which the run pauses; null: none. */
  stop_after: orNull(Type.Integer({ minimum: 1 })),
  /** Seconds until the run ends with a validation; null: no limit. */
  max_seconds: orNull(aboveZero(1)),
  /** Actions after which the run ends; null: no limit. */
  max_env_steps: orNull(positive(1)),
  /** Sampled tokens after which the run ends; null: no limit. */
  max_sampled_tokens: orNull(positive(1)),
  /** Iterations between validations; 0: none. */
  validate_every: count(10),
  /** Validates before the first iteration. */
  validate_first: flag(true),
  /** Iterations between checkpoints; 0: none. */
  checkpoint_every: count(10),
  /** Newest checkpoints to keep. */
  keep_checkpoints: positive(2),
  /** Type of the weights in checkpoints; `bfloat16` rounds them. */
  checkpoint_dtype: choice(WEIGHT_DTYPES, 'float32'),
  /** Metric of `keep_best` and `early_stopping`. */
  monitor: section({
    /** Name of the metric. */
    metric: Type.String({ pattern: '^val-env/', default: 'val-env/success' }),
    /** Direction of improvement. */
    mode: choice(['max', 'min'], 'max'),
  }),
  /** Keeps the best checkpoint as `checkpoints/best`. */
  keep_best: flag(false),
  /** Ends a run that does not learn, or has learned. */
  early_stopping: EarlyStopping,
});

/** A further set of validation episodes; what is null is as in `validation`. */
const ValidationSet = closed({
  /** Environments that it plays. */
  tags: orNull(Type.Array(Type.String(), { minItems: 1 })),
  /** First seed of its levels and of their sampling. */
  seed: orNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  /** Episodes of a validation. */
  episodes: orNull(Type.Integer({ minimum: 1 })),
  /** Sampling temperature. */
  temperature: orNull(Type.Number({ minimum: 0 })),
  /** Samples from the k likeliest tokens; 0: all. */
  top_k: orNull(Type.Integer({ minimum: 0 })),
  /** Samples from the likeliest tokens with this total probability. */
  top_p: orNull(Type.Number({ exclusiveMinimum: 0, maximum: 1 })),
});

export const ValidationSettings = section({
  /** First seed of the validation levels and of their sampling. */
  seed: count(123),
  /** Episodes of a validation. */
  episodes: positive(512),
  /** Excludes the levels of validations from training. */
  unseen_levels: flag(false),
  /** Environments that validations play; null: the training tags. */
  tags: orNull(Type.Array(Type.String(), { minItems: 1 })),
  ...sampling(0.5),
  /** Further sets by name. */
  sets: Type.Record(Type.String({ pattern: '^[A-Za-z0-9_-]+$' }), ValidationSet, { default: {} }),
});

export const TrackingSettings = section({
  /** Writes TensorBoard event files. */
  tensorboard: flag(true),
  /** Peak TFLOP/s of the machine, for `perf/mfu`; null: no such metric. */
  peak_tflops: orNull(aboveZero(1)),
  /** Writes an offline run of Weights & Biases. */
  wandb: orNull(
    closed({
      /** Project. */
      project: text('ragen'),
      /** User or team. */
      entity: orNull(Type.String({ minLength: 1 })),
      /** Group of runs. */
      group: orNull(Type.String({ minLength: 1 })),
      /** Tags. */
      tags: Type.Array(Type.String(), { default: [] }),
    }),
  ),
  /** Logs to an MLflow tracking server. */
  mlflow: orNull(
    closed({
      /** Address of the server. */
      url: Type.String({ pattern: '^https?://' }),
      /** Experiment. */
      experiment: text('ragen'),
      /** Environment variable with the server's token. */
      token_env: orNull(Type.String({ minLength: 1 })),
    }),
  ),
  /** Iterations between written training trajectories; 0: none. */
  trajectories_every: count(10),
  /** Likeliest tokens to keep next to each sampled token. */
  top_logprobs: Type.Integer({ minimum: 0, maximum: 20, default: 0 }),
});
