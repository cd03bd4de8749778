import { Type } from '../../../shared/schema/type.ts';
import { serverOperation } from '../operation.ts';
import { EnvironmentList } from '../schemas/environment.ts';
import { EnvId } from '../schemas/fields.ts';

const MAX_SEARCH_LENGTH = 256;
/** More than a server has by default, so that clients that know no pages see all. */
const DEFAULT_PAGE = 2000;
const MAX_PAGE = 10_000;

export const listEnvironments = serverOperation({
  name: 'list_environments',
  method: 'GET',
  path: '/v1/envs',
  status: 200,
  scope: 'play',
  tag: 'environments',
  summary: 'List environments, those that come with the server first, the others by id',
  keyed: false,
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
  handle({ catalog }, _principal, input) {
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
