import { serverOperation } from '../operation.ts';
import { EnvId } from '../schemas/fields.ts';
import { CheckReport, plainReport } from './definitions.ts';

export const checkOperation = serverOperation({
  name: 'check',
  method: 'POST',
  path: '/v1/envs/{env_id}/check',
  status: 200,
  scope: 'register',
  tag: 'environments',
  summary: 'Check whether an environment keeps its contract',
  description: 'Plays some episodes with sensible and senseless actions and reports what was found.',
  keyed: false,
  plays: true,
  problems: ['unknown_environment'],
  params: { env_id: EnvId },
  result: CheckReport,
  async handle({ registrations }, principal, { env_id }) {
    return plainReport(await registrations.check(principal, env_id));
  },
});
