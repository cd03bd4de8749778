import { Type } from '../../../shared/schema/type.ts';
import { serverOperation } from '../operation.ts';
import { EnvId } from '../schemas/fields.ts';

export const remove = serverOperation({
  name: 'remove',
  method: 'DELETE',
  path: '/v1/envs/{env_id}',
  status: 204,
  scope: 'register',
  tag: 'environments',
  summary: 'Remove an environment of your own',
  description:
    'Refused with `environment_in_use` while sessions play it or its owner has environments composed from it. Those that others have composed from it can no longer be played.',
  keyed: false,
  audited: 'remove',
  problems: ['unknown_environment', 'builtin_environment', 'environment_in_use', 'step_timeout'],
  params: { env_id: EnvId },
  result: Type.Null(),
  async handle({ registrations }, principal, { env_id }) {
    await registrations.remove(principal, env_id);
    return null;
  },
});
