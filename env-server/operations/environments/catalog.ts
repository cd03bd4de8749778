import { Type } from '../../../shared/schema/type.ts';
import { type EnvironmentSpec, endsOf, observationSpaces } from '../../environments/core/environment.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { gymnasiumSpace, jsonSchema, type Space } from '../../environments/core/spaces.ts';
import type { Variant } from '../../sessions/episodes/variant.ts';
import { serverOperation } from '../operation.ts';
import { Config, EnvId, EnvironmentDocument, EnvironmentList, Wrappers } from '../schemas/fields.ts';

const MAX_SEARCH_LENGTH = 256;
/** More than a server has by default, so that clients without paging see them all. */
const DEFAULT_PAGE = 2000;
const MAX_PAGE = 10_000;

export const listEnvironments = serverOperation({
  name: 'list_environments',
  method: 'GET',
  path: '/v1/envs',
  summary: 'List environments, those that come with the server first, the others by id',
  revalidated: true,
  query: {
    search: Type.Optional(
      Type.String({
        maxLength: MAX_SEARCH_LENGTH,
        description: 'Words that id, title or description contain.',
      }),
    ),
    tag: Type.Optional(Type.String({ maxLength: MAX_SEARCH_LENGTH })),
    limit: Type.Optional(Type.Integer({ minimum: 1, maximum: MAX_PAGE, default: DEFAULT_PAGE })),
    cursor: Type.Optional({
      ...EnvId,
      description: '`next_cursor` of the page before: its last environment.',
    }),
  },
  result: EnvironmentList,
  handle({ services: { catalog }, input }) {
    const words = (input.search ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    const limit = input.limit ?? DEFAULT_PAGE;
    const found = catalog
      .list(input.cursor)
      .filter(({ spec }) => {
        const text =
          `${spec.id} ${(spec.aliases ?? []).join(' ')} ${spec.title} ${spec.description}`.toLowerCase();
        return (
          (input.tag === undefined || spec.tags.includes(input.tag)) &&
          words.every(word => text.includes(word))
        );
      })
      .slice(0, limit + 1)
      .map(({ spec }) => ({
        env_id: spec.id,
        ...(spec.aliases && { aliases: [...spec.aliases] }),
        title: spec.title,
        tags: [...spec.tags],
        max_episode_steps: spec.maxEpisodeSteps,
      }));
    const environments = found.slice(0, limit);
    return { environments, next_cursor: found.length > limit ? environments[limit - 1].env_id : null };
  },
});

export const getEnvironment = serverOperation({
  name: 'get_environment',
  method: 'GET',
  path: '/v1/envs/{env_id}',
  summary: 'Describe an environment in its default configuration',
  revalidated: true,
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  result: EnvironmentDocument,
  handle: ({ services: { catalog }, input }) => environmentDocument(catalog.variant(input.env_id)),
});

export const describeEnvironment = serverOperation({
  name: 'describe_environment',
  method: 'POST',
  path: '/v1/envs/{env_id}/describe',
  summary: 'Describe an environment under a configuration and wrappers',
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  body: { config: Type.Optional(Config), wrappers: Type.Optional(Wrappers) },
  result: EnvironmentDocument,
  handle: ({ services: { catalog }, input }) =>
    environmentDocument(catalog.variant(input.env_id, input.config, input.wrappers)),
});

/** Everything a client may want to know about an environment under its effective configuration. */
function environmentDocument(variant: Variant): MaybePromise<EnvironmentDocument> {
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
