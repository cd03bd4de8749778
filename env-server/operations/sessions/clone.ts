import { Type } from 'typebox';
import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { Count, GroupId } from '../schemas/fields.ts';
import { ClonedSessions } from '../schemas/session.ts';
import { openedReply } from './views.ts';

export const clone = sessionOperation({
  name: 'clone',
  method: 'POST',
  path: '/v1/sessions/{session_id}/clone',
  status: 201,
  summary: 'Open sessions in the same state',
  description:
    'The clones draw the same random numbers as the original would. They join its group unless `group_id` says otherwise.',
  keyed: true,
  plays: true,
  problems: [
    'too_many_sessions',
    'unsupported',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  body: { count: Type.Optional(Count), group_id: Type.Optional(GroupId) },
  result: ClonedSessions,
  handle({ sessions }, session, input) {
    const clones = sessions.clone(session, input.count ?? 1, input.group_id);
    return chain(clones, opened => openedReply(sessions, opened, false));
  },
});
