import { serverOperation } from '../operation.ts';
import { EnvId } from '../schemas/fields.ts';
import { audited, DefinitionInput, documented, Registration, registration } from './definitions.ts';

export const replace = serverOperation({
  name: 'replace',
  method: 'PUT',
  path: '/v1/envs/{env_id}',
  status: 200,
  scope: 'register',
  tag: 'environments',
  summary: 'Replace an environment of your own',
  description:
    'Checked like a registration. Sessions that are open go on with the old definition. Where results are to be compared, register a new version instead.',
  keyed: true,
  plays: true,
  audited: 'replace',
  problems: [
    'unknown_environment',
    'builtin_environment',
    'environment_in_use',
    'environment_exists',
    'check_failed',
  ],
  params: { env_id: EnvId },
  body: { definition: DefinitionInput },
  documented,
  result: Registration,
  async handle({ registrations }, principal, { env_id, definition }) {
    const checked = audited(registrations, principal, 'replace', env_id, definition);
    return registration(registrations, await registrations.replace(principal, env_id, checked));
  },
});
