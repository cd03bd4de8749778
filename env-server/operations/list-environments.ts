import { Type } from 'typebox';
import { serverOperation } from './operation.ts';
import { EnvironmentList } from './schemas.ts';

const LONGEST_SEARCH = 256;

export const listEnvironments = serverOperation({
  name: 'list_environments',
  method: 'GET',
  path: '/v1/envs',
  status: 200,
  scope: 'play',
  tag: 'environments',
  summary: 'List environments',
  keyed: false,
  revalidated: true,
  query: {
    search: Type.Optional(
      Type.String({ maxLength: LONGEST_SEARCH, description: 'Words that id, title or description contain.' }),
    ),
    tag: Type.Optional(Type.String({ maxLength: LONGEST_SEARCH })),
  },
  result: EnvironmentList,
  handle({ catalogue }, _principal, input) {
    const words = (input.search ?? '').toLowerCase().split(/\s+/).filter(Boolean);
    const environments = catalogue
      .list()
      .filter(({ spec }) => {
        const text = `${spec.id} ${spec.title} ${spec.description}`.toLowerCase();
        return (
          (input.tag === undefined || spec.tags.includes(input.tag)) &&
          words.every(word => text.includes(word))
        );
      })
      .map(({ spec }) => ({
        env_id: spec.id,
        title: spec.title,
        tags: [...spec.tags],
        max_episode_steps: spec.maxEpisodeSteps,
      }));
    return { environments };
  },
});
