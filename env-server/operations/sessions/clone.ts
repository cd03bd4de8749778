import { Type } from '../../../shared/schema/type.ts';
import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { Count, FreshDynamicsSeed, GroupId } from '../schemas/fields.ts';
import { ClonedSessions } from '../schemas/session.ts';
import { openedReply } from './views.ts';

export const clone = sessionOperation({
  name: 'clone',
  method: 'POST',
  path: '/v1/sessions/{session_id}/clone',
  status: 201,
  summary: 'Open sessions in the same state',
  description:
    'The clones draw the same random numbers as the original would, unless `dynamics_seed` gives each a separate stream. They join its group unless `group_id` says otherwise.',
  keyed: true,
  plays: true,
  problems: [
    'too_many_sessions',
    'unsupported',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  body: {
    count: Type.Optional(Count),
    group_id: Type.Optional(GroupId),
    dynamics_seed: Type.Optional(FreshDynamicsSeed),
  },
  result: ClonedSessions,
  handle({ sessions }, session, input) {
    const dynamics_seed = input.dynamics_seed ?? undefined;
    const clones = sessions.clone(session, { ...input, dynamics_seed });
    return chain(clones, opened => openedReply(sessions, opened, false));
  },
});
