import { Type } from '../../../shared/schema/type.ts';
import { sessionOperation } from '../operation.ts';
import { FreshDynamicsSeed, NAME_LENGTH } from '../schemas/fields.ts';
import { Session } from '../schemas/session.ts';
import { sessionView } from './views.ts';

export const restore = sessionOperation({
  name: 'restore',
  method: 'POST',
  path: '/v1/sessions/{session_id}/restore',
  status: 200,
  summary: 'Go back to a snapshot',
  description:
    'Under a new `episode_id`; random draws come out as they did, unless `dynamics_seed` gives it another stream.',
  keyed: true,
  plays: true,
  problems: ['unknown_snapshot'],
  body: {
    snapshot_id: Type.String({
      minLength: 1,
      maxLength: NAME_LENGTH,
      description: 'A snapshot this session took.',
    }),
    dynamics_seed: Type.Optional(FreshDynamicsSeed),
  },
  result: Session,
  handle(_services, session, input) {
    session.restore(input.snapshot_id, input.dynamics_seed ?? undefined);
    return sessionView(session);
  },
});
