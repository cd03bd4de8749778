import { Type } from '../../../shared/schema/type.ts';
import { serverOperation } from '../operation.ts';
import { EnvironmentDocument } from '../schemas/environment.ts';
import { Config, EnvId, Wrappers } from '../schemas/fields.ts';
import { environmentDocument } from './environment-document.ts';

export const describeEnvironment = serverOperation({
  name: 'describe_environment',
  method: 'POST',
  path: '/v1/envs/{env_id}/describe',
  status: 200,
  scope: 'play',
  tag: 'environments',
  summary: 'All about an environment under a configuration and wrappers',
  keyed: false,
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  body: { config: Type.Optional(Config), wrappers: Type.Optional(Wrappers) },
  result: EnvironmentDocument,
  handle: ({ catalog }, _principal, input) =>
    environmentDocument(catalog.variant(input.env_id, input.config, input.wrappers)),
});
