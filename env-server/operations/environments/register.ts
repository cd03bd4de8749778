import { EXAMPLES } from '../../custom/examples.ts';
import { serverOperation } from '../operation.ts';
import { EnvId } from '../schemas/fields.ts';
import { audited, DefinitionInput, documented, Registration, registration } from './definitions.ts';

export const register = serverOperation({
  name: 'register',
  method: 'POST',
  path: '/v1/envs',
  status: 201,
  scope: 'register',
  tag: 'environments',
  summary: 'Register an environment of your own',
  description:
    'The environment is played before it is accepted: it must reset and step, keep to its spaces, and give the same episode for the same seed. docs/how-to/custom-environments.md walks through every kind.',
  keyed: true,
  plays: true,
  audited: 'register',
  problems: [
    'unknown_environment',
    'environment_exists',
    'builtin_environment',
    'environment_in_use',
    'check_failed',
    'too_many_environments',
  ],
  body: { env_id: EnvId, definition: DefinitionInput },
  documented,
  examples: EXAMPLES,
  result: Registration,
  async handle({ registrations }, principal, { env_id, definition }) {
    const checked = audited(registrations, principal, 'register', env_id, definition);
    return registration(registrations, await registrations.register(principal, env_id, checked));
  },
});
