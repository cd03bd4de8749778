import { serverOperation } from '../operation.ts';
import { EnvironmentDocument } from '../schemas/environment.ts';
import { EnvId } from '../schemas/fields.ts';
import { environmentDocument } from './environment-document.ts';

export const getEnvironment = serverOperation({
  name: 'get_environment',
  method: 'GET',
  path: '/v1/envs/{env_id}',
  status: 200,
  scope: 'play',
  tag: 'environments',
  summary: 'All about an environment, in its default configuration',
  keyed: false,
  revalidated: true,
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  result: EnvironmentDocument,
  handle: ({ catalog }, _principal, input) => environmentDocument(catalog.variant(input.env_id)),
});
