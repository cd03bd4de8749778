import { serverOperation } from '../operation.ts';
import { EnvId } from '../schemas/fields.ts';
import { StoredDefinition, storedDefinition } from './definitions.ts';

export const getDefinition = serverOperation({
  name: 'get_definition',
  method: 'GET',
  path: '/v1/envs/{env_id}/definition',
  status: 200,
  scope: 'register',
  tag: 'environments',
  summary: 'The definition of an environment of your own',
  description: 'As it was registered, save for the values of `headers`.',
  keyed: false,
  revalidated: true,
  problems: ['unknown_environment', 'builtin_environment'],
  params: { env_id: EnvId },
  result: StoredDefinition,
  handle: ({ registrations }, principal, { env_id }) =>
    storedDefinition(registrations.definition(principal, env_id)),
});
