import { endsOf } from '../../environments/core/ends.ts';
import type { EnvironmentSpec } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import type { Space } from '../../environments/core/space.ts';
import { gymnasiumSpace, jsonSchema } from '../../environments/core/space-documents.ts';
import { observationSpaces } from '../../environments/core/spaces.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import type { EnvironmentDocument } from '../schemas/environment.ts';

/** All that a client may want to know of an environment under its effective configuration. */
export function environmentDocument(variant: Variant): MaybePromise<EnvironmentDocument> {
  const document = plainDocument(variant);
  const found = variant.environment.condition?.();
  return found ? found.then(condition => ({ ...document, condition })) : document;
}

function plainDocument(variant: Variant): EnvironmentDocument {
  const { environment, config } = variant;
  const { spec } = environment;
  const description = environment.describe(config);
  const { text, structured } = observationSpaces(environment, config);
  return {
    env_id: spec.id,
    ...(spec.aliases && { aliases: [...spec.aliases] }),
    title: spec.title,
    description: spec.description,
    tags: [...spec.tags],
    config,
    wrappers: [...variant.wrappers],
    config_schema: spec.configSchema,
    options_schema: spec.optionsSchema,
    presets: { ...spec.presets },
    instruction: description.instruction,
    legend: [...(description.legend ?? [])],
    ...(description.actions && { actions: [...description.actions] }),
    ...(description.actionFormat !== undefined && { action_format: description.actionFormat }),
    ...(description.exampleActions && { example_actions: [...description.exampleActions] }),
    ...(description.vocabulary && { vocabulary: [...description.vocabulary] }),
    observation_space: spaceDocument(text),
    structured_observation_space: spaceDocument(structured),
    action_space: spaceDocument(spec.actionSpace),
    observation_formats: variant.formats,
    reward_range: rewardRange(spec),
    ...(spec.rewardThreshold !== undefined && { reward_threshold: spec.rewardThreshold }),
    ...(spec.knownOptimum && { known_optimum: spec.knownOptimum }),
    ends: { ...endsOf(spec) },
    max_episode_steps: variant.maxSteps,
    render_modes: environment.render ? ['text', 'structured', 'png'] : ['text', 'structured'],
    references: Object.entries(environment.references ?? {}).map(([name, { title }]) => ({ name, title })),
    capabilities: {
      seed: spec.seedable !== false,
      snapshot: variant.copyable,
      reseed: variant.reseedable,
      render: environment.render !== undefined,
    },
    example_action: spec.exampleAction,
    history: [...spec.history],
  };
}

function spaceDocument(space: Space): EnvironmentDocument['action_space'] {
  return { json_schema: jsonSchema(space), gymnasium: gymnasiumSpace(space) };
}

function rewardRange({ rewardRange }: EnvironmentSpec): (number | null)[] {
  return rewardRange.map(bound => (Number.isFinite(bound) ? bound : null));
}
