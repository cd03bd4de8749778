import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { AsksStateKey, DynamicsSeed, Options, Seed } from '../schemas/fields.ts';
import { Session } from '../schemas/session.ts';
import { sessionView } from './views.ts';

export const reset = sessionOperation({
  name: 'reset',
  method: 'POST',
  path: '/v1/sessions/{session_id}/reset',
  status: 200,
  summary: 'Begin a new episode',
  keyed: true,
  plays: true,
  problems: ['session_budget_exceeded'],
  body: {
    seed: Type.Optional(Seed),
    dynamics_seed: Type.Optional(DynamicsSeed),
    options: Type.Optional(Options),
    state_key: Type.Optional(AsksStateKey),
  },
  result: Session,
  handle(_services, session, { seed, dynamics_seed, options, state_key }) {
    // Gymnasium writes "none" as null.
    const request = {
      seed: seed ?? undefined,
      dynamicsSeed: dynamics_seed ?? undefined,
      options: options ?? undefined,
      stateKeys: state_key,
    };
    return chain(session.reset(request), () => sessionView(session));
  },
});
