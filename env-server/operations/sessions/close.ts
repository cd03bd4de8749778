import { Type } from '../../../shared/schema/type.ts';
import { serverOperation } from '../operation.ts';
import { SessionId } from '../schemas/fields.ts';

export const close = serverOperation({
  name: 'close',
  method: 'DELETE',
  path: '/v1/sessions/{session_id}',
  status: 204,
  scope: 'play',
  tag: 'sessions',
  summary: 'Close a session',
  description: 'Does not wait for a step in flight. Closing twice is fine.',
  keyed: false,
  problems: ['unknown_session'],
  params: { session_id: SessionId },
  result: Type.Null(),
  handle({ sessions }, principal, input) {
    sessions.close(principal, input.session_id);
    return null;
  },
});
