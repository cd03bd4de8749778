import { sessionOperation } from '../operation.ts';
import { SessionDetail } from '../schemas/session.ts';
import { sessionDetail } from './views.ts';

export const get = sessionOperation({
  name: 'get',
  method: 'GET',
  path: '/v1/sessions/{session_id}',
  status: 200,
  summary: 'Where a session stands',
  keyed: false,
  plays: true,
  result: SessionDetail,
  handle(_services, session) {
    session.acknowledge();
    session.episode.weigh();
    return sessionDetail(session);
  },
});
