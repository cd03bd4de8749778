import type { Static } from 'typebox';
import Type from 'typebox';
import { closed } from '../../shared/schema/type.ts';
import { AlgorithmSettings, LossConfig, OptimizerConfig, SchedulesSettings } from './sections/algorithm.ts';
import { EndpointSection, PolicySettings } from './sections/policy.ts';
import { RolloutSettings, ServerSettings, TagSettings } from './sections/rollout.ts';
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
  text,
} from './sections/schema.ts';
import { TrackingSettings, TrainingSettings, ValidationSettings, WarmStart } from './sections/training.ts';

const GENERATION_ENGINES = ['local', 'ragen', 'vllm', 'sglang'] as const;

/** The sampler of tokens while a policy is trained: its own threads, or engines elsewhere. */
const GenerationSection = section({
  /** `local`: the policy's threads. `ragen`: `ragen serve`. */
  engine: choice(GENERATION_ENGINES, 'local'),
  /** Addresses of the engines. */
  urls: Type.Array(Type.String({ pattern: '^https?://' }), { uniqueItems: true, default: [] }),
  /** Folder of weights that trainer and engines share under one path. */
  adapter_folder: orNull(Type.String({ minLength: 1 })),
  /** Environment variable with their administrator token; null: none. */
  token_env: orNull(Type.String({ minLength: 1 })),
  /** Largest mean gap of log-probabilities to the policy's, in nats. */
  max_gap: aboveZero(0.05),
  /** Iterations between comparisons. */
  gap_every: positive(10),
  /** Seconds until a request is sent to another engine. */
  timeout_s: aboveZero(300),
  /** Seconds to wait while no engine answers. */
  patience_s: aboveZero(600),
});

/** Measurements that change nothing in the run but the time it takes. */
const DiagnosticsSettings = section({
  /** Measures whether reasoning (or actions) depends on the prompt. */
  collapse: section({
    /** Iterations between measurements; 0: none. */
    every: count(5),
    /** Samples of a series. */
    samples: Type.Union([Type.Integer({ minimum: 2 }), Type.Literal('all')], { default: 64 }),
    /** Most tokens of a measurement. */
    max_tokens: positive(1_000_000),
    /** Added to a standard deviation before z-scores divide by it. */
    std_eps: Type.Number({ exclusiveMinimum: 0, default: 1e-3 }),
    /** Decay of the moving average of that standard deviation. */
    ema_decay: share(0.9),
    /**
     * Thresholds of high entropy (nats per token) and information; null: half the median of the first three
     * measurements.
     */
    thresholds: orNull(closed({ entropy: notNegative(0.1), mi_share: share(0.1) })),
  }),
  /** Gradients of task, entropy and KL by spread of groups. */
  gradients: section({
    /** Iterations between measurements; 0: none. One costs about an update. */
    every: count(0),
    /** Buckets of groups. */
    buckets: positive(6),
    /** `quantile`: equal numbers of groups. `fixed_rv`: borders at standard deviations of 0, 1, 2, …. */
    bucket_mode: choice(['quantile', 'fixed_rv'], 'quantile'),
    /** Also measures before the filter. */
    prefilter: flag(true),
    /** Most groups in the signal-to-noise ratio; 0: none. */
    snr_groups: count(16),
  }),
});

/** Everything a run depends on: what YAML configs are validated against. Keys are RAGEN's and verl's where they have one. */
export const RunSettings = closed({
  /** Seed of everything random: weights, sampled tokens, orders and levels. */
  seed: count(0),
  /** Seeds that do not change with `seed`. */
  seeds: section({
    /** First seed of validation; null: `validation.seed`, shifted by `seed`. */
    validation: orNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
  }),
  /** Recipes of `configs/recipes`. */
  recipe: Type.Array(Type.String(), { default: [] }),
  run: section({
    /** Folder that holds the runs. */
    folder: text('runs'),
    /** Name of the run's folder; null: the name of the config file. */
    name: orNull(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$' })),
  }),
  /** Addresses, or objects with weights and tokens. */
  servers: Type.Array(ServerSettings, { minItems: 1, default: [{ url: 'http://127.0.0.1:8080' }] }),
  /** The trained model and its runtime. */
  policy: PolicySettings,
  /** A model behind an API, for `evaluate --policy endpoint`. */
  endpoint: orNull(EndpointSection),
  /** Environments by name. */
  tags: Type.Record(Type.String(), TagSettings, { default: {} }),
  /** Training environments; empty: learn from files only. */
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
});
export type RunSettings = Static<typeof RunSettings>;
