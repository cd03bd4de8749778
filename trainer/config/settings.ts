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
    /** `local`: the policy's own threads; `ragen`: servers of `ragen serve`. */
    engine: choice(GENERATION_ENGINES, 'local'),
    /** Addresses of the engines, alike in model and settings, e.g. `http://gpu-1:8000`. */
    urls: Type.Array(Type.String({ pattern: '^https?://' }), { uniqueItems: true, default: [] }),
    /** Folder that the trainer writes and the engines read under the same path: each version of the weights lies there. */
    adapter_folder: orNull(Type.String({ minLength: 1 })),
    /** Environment variable that holds the engines' token, that of an administrator; null: they want none. */
    token_env: orNull(Type.String({ minLength: 1 })),
    /** Largest mean difference, in nats, between log-probabilities of the engines and of the policy that learns. */
    max_gap: aboveZero(0.05),
    /** Iterations between comparisons; the first is always compared. */
    gap_every: positive(10),
    /** Seconds until a request goes to another engine. */
    timeout_s: aboveZero(300),
    /** Seconds that the run waits when no engine answers. */
    patience_s: aboveZero(600),
  },
  section,
);

/** Measurements that change nothing in the run but the time it takes. */
const DiagnosticsSettings = Type.Object(
  {
    /** Measures if the reasoning depends on the prompt; for policies that do not think (`rollout.think`), if the actions do. */
    collapse: Type.Object(
      {
        /** The first iteration is measured, and then every so many; 0 none. */
        every: count(5),
        /** Samples of a series that are compared, each under every prompt; `all` takes every one. */
        samples: Type.Union([Type.Integer({ minimum: 2 }), Type.Literal('all')], { default: 64 }),
        /** Tokens that a measurement puts through the model at most: fewer samples are taken where there would be more. */
        max_tokens: positive(1_000_000),
        /** Added to a standard deviation before z-scores divide by it. */
        std_eps: Type.Number({ exclusiveMinimum: 0, default: 1e-3 }),
        /** Decay of the moving average of that standard deviation. */
        ema_decay: share(0.9),
        /** Thresholds of high entropy (nats per token) and high information (share of log N); null: half the median of the run's first three measurements. */
        thresholds: orNull(Type.Object({ entropy: notNegative(0.1), mi_share: share(0.1) }, strict)),
      },
      section,
    ),
    /** Gradients of task, entropy and KL apart, for groups of little and much spread. */
    gradients: Type.Object(
      {
        /** The first iteration is measured, and then each so many later; 0 none. Costs about as much as an update. */
        every: count(0),
        /** Buckets that groups are sorted into; fewer where there are fewer groups. */
        buckets: positive(6),
        /** `quantile`: of equal numbers of groups; `fixed_rv`: with borders at standard deviations of 0, 1, 2, …. */
        bucket_mode: choice(['quantile', 'fixed_rv'], 'quantile'),
        /** Measured before the filter too, as `grad_norm_prefilter/…`. */
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
    /** Moves all that is drawn: weights, tokens, orders, and the levels of training, demonstrations and validation. */
    seed: count(0),
    /** Seeds that do not change with `seed`. */
    seeds: Type.Object(
      {
        /** First seed of the validation's levels and its draws; null: `validation.seed`, moved by `seed`. */
        validation: orNull(Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER })),
      },
      section,
    ),
    /** Recipes of `configs/recipes` that the settings are built on; where they are named they are already in. */
    recipe: Type.Array(Type.String(), { default: [] }),
    run: Type.Object(
      {
        folder: text('runs'),
        /** Name of the run's folder; null: the config's file name. */
        name: orNull(Type.String({ pattern: '^[A-Za-z0-9][A-Za-z0-9._-]*$' })),
      },
      section,
    ),
    /** Environment servers: addresses, or objects with weights and tokens. */
    servers: Type.Array(ServerSettings, { minItems: 1, default: [{ url: 'http://127.0.0.1:8080' }] }),
    policy: PolicySettings,
    /** A model behind an interface, for `evaluate --policy endpoint`. */
    endpoint: orNull(EndpointSection),
    /** Every environment that can be named; `rollout.n_groups` and `train_tags` choose. */
    tags: Type.Record(Type.String(), TagSettings, { default: {} }),
    /** Environments to train in; none where only files are learned from. */
    train_tags: Type.Array(Type.String(), { default: [] }),
    rollout: RolloutSettings,
    /** The sampler of tokens in training. */
    generation: GenerationSection,
    warm_start: orNull(WarmStart),
    algorithm: AlgorithmSettings,
    loss: LossConfig,
    /** Coefficients that change as the run goes on. */
    schedules: SchedulesSettings,
    optimizer: OptimizerConfig,
    training: TrainingSettings,
    validation: ValidationSettings,
    tracking: TrackingSettings,
    diagnostics: DiagnosticsSettings,
  },
  strict,
);
export type RunSettings = Static<typeof RunSettings>;
