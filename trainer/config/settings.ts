import Type, { type Static } from 'typebox';
import { AlgorithmSettings, LossConfig, OptimizerConfig } from './sections/algorithm.ts';
import { DiagnosticsSettings } from './sections/diagnostics.ts';
import { EndpointSection } from './sections/endpoint.ts';
import { GenerationSection } from './sections/generation.ts';
import { PolicySettings } from './sections/policy.ts';
import { RolloutSettings, ServerSettings, TagSettings } from './sections/rollout.ts';
import { SchedulesSettings } from './sections/schedules.ts';
import { count, orNull, section, strict, text } from './sections/schema.ts';
import { TrackingSettings, TrainingSettings, ValidationSettings, WarmStart } from './sections/training.ts';

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
