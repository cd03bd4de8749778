import type { Static } from 'typebox';
import Type from 'typebox';
import { AlgorithmSettings, LossConfig, OptimizerConfig } from './sections/algorithm.ts';
import { EndpointSection } from './sections/endpoint.ts';
import { PolicySettings } from './sections/policy.ts';
import { RolloutSettings, ServerSettings, TagSettings } from './sections/rollout.ts';
import { SchedulesSettings } from './sections/schedules.ts';
import {
  aboveZero,
  choice,
  count,
  flag,
  notNegative,
  orNull,
  positive,
  section,
  share,
  strict,
  text,
} from './sections/schema.ts';
import { TrackingSettings, TrainingSettings, ValidationSettings, WarmStart } from './sections/training.ts';

const GENERATION_ENGINES = ['local', 'ragen', 'vllm', 'sglang'] as const;

/** The sampler of tokens while a policy is trained: its own threads, or engines elsewhere. */
const GenerationSection = Type.Object(
  {
    /** `local`: the policy's own threads. `ragen`: servers of `ragen serve`. `vllm`, `sglang`: servers of these engines. */
    engine: choice(GENERATION_ENGINES, 'local'),
    /** Addresses of the engines, e.g. `http://gpu-1:8000`. All must serve the same model with the same settings. */
    urls: Type.Array(Type.String({ pattern: '^https?://' }), { uniqueItems: true, default: [] }),
    /** Folder that the trainer writes to and the engines read from, under the same path; it holds each version of the weights. */
    adapter_folder: orNull(Type.String({ minLength: 1 })),
    /** Environment variable with the engines' administrator token; null: they require none. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Largest mean difference, in nats, between the engines' log-probabilities and those of the policy that is trained. */
    max_gap: aboveZero(0.05),
    /** Iterations between comparisons; the first iteration is always compared. */
    gap_every: positive(10),
    /** Seconds until a request is sent to another engine. */
    timeout_s: aboveZero(300),
    /** Seconds that the run waits while no engine answers. */
    patience_s: aboveZero(600),
  },
  section,
);

/** Measurements that change nothing in the run but the time it takes. */
const DiagnosticsSettings = Type.Object(
  {
    /**
     * Measures whether the reasoning depends on the prompt; for policies that do not think (`rollout.think`), whether the
     * actions do.
     */
    collapse: Type.Object(
      {
        /** Iterations between measurements, the first iteration included; 0: none. */
        every: count(5),
        /** Samples of a series to compare, each under every prompt; `all`: every one. */
        samples: Type.Union([Type.Integer({ minimum: 2 }), Type.Literal('all')], { default: 64 }),
        /** Most tokens that a measurement sends through the model; it takes fewer samples to stay below. */
        max_tokens: positive(1_000_000),
        /** Added to a standard deviation before z-scores divide by it. */
        std_eps: Type.Number({ exclusiveMinimum: 0, default: 1e-3 }),
        /** Decay of the moving average of that standard deviation. */
        ema_decay: share(0.9),
        /**
         * Thresholds of high entropy (nats per token) and high information (share of log N); null: half the median of the
         * run's first three measurements.
         */
        thresholds: orNull(Type.Object({ entropy: notNegative(0.1), mi_share: share(0.1) }, strict)),
      },
      section,
    ),
    /** Separate gradients of task, entropy and KL, for groups with little and with much spread. */
    gradients: Type.Object(
      {
        /** Iterations between measurements, the first iteration included; 0: none. One costs about as much as an update. */
        every: count(0),
        /** Buckets that groups are sorted into; fewer if there are fewer groups. */
        buckets: positive(6),
        /** `quantile`: equal numbers of groups. `fixed_rv`: borders at standard deviations of 0, 1, 2, …. */
        bucket_mode: choice(['quantile', 'fixed_rv'], 'quantile'),
        /** Also measures before the filter, as `grad_norm_prefilter/…`. */
        prefilter: flag(true),
        /** Most groups with a separate gradient for the signal-to-noise ratio; 0: none. */
        snr_groups: count(16),
      },
      section,
    ),
  },
  section,
);

/** Everything a run depends on: what YAML configs are validated against. Keys are RAGEN's and verl's where they have one. */
export const RunSettings = Type.Object(
  {
    /** Seed of everything random: weights, sampled tokens, orders, and the levels of training, demonstrations and validation. */
    seed: count(0),
    /** Seeds that do not change with `seed`. */
    seeds: Type.Object(
      {
        /** First seed of the validation levels and of their sampling; null: `validation.seed`, shifted by `seed`. */
        validation: orNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      },
      section,
    ),
    /** Recipes of `configs/recipes` that the settings are based on. A config that names them includes them already. */
    recipe: Type.Array(Type.String(), { default: [] }),
    run: Type.Object(
      {
        /** Folder that holds the runs. */
        folder: text('runs'),
        /** Name of the run's folder; null: the name of the config file. */
        name: orNull(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$' })),
      },
      section,
    ),
    /** Environment servers: addresses, or objects with weights and tokens. */
    servers: Type.Array(ServerSettings, { minItems: 1, default: [{ url: 'http://127.0.0.1:8080' }] }),
    /** The model that is trained, and where it runs. */
    policy: PolicySettings,
    /** A model behind an API, for `evaluate --policy endpoint`. */
    endpoint: orNull(EndpointSection),
    /** Environments by name. `train_tags`, `rollout.n_groups` and `validation.tags` select from them. */
    tags: Type.Record(Type.String(), TagSettings, { default: {} }),
    /** Environments to train in; empty for a run that learns from files only. */
    train_tags: Type.Array(Type.String(), { default: [] }),
    /** Episodes: groups, prompts, responses and sampling. */
    rollout: RolloutSettings,
    /** Which engine samples tokens during training. */
    generation: GenerationSection,
    /** Supervised learning before reinforcement learning; null: none. */
    warm_start: orNull(WarmStart),
    /** From episodes to advantages. */
    algorithm: AlgorithmSettings,
    /** The loss that an update minimizes. */
    loss: LossConfig,
    /** Coefficients that change during the run. */
    schedules: SchedulesSettings,
    /** AdamW. */
    optimizer: OptimizerConfig,
    /** Length of the run, validations and checkpoints. */
    training: TrainingSettings,
    /** Episodes on fixed levels that measure the policy. */
    validation: ValidationSettings,
    /** Writers of metrics and episodes. */
    tracking: TrackingSettings,
    /** Measurements that do not change results. */
    diagnostics: DiagnosticsSettings,
  },
  strict,
);
export type RunSettings = Static<typeof RunSettings>;
