import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { ValidActions } from '../schemas/session.ts';

export const validActions = sessionOperation({
  name: 'valid_actions',
  method: 'GET',
  path: '/v1/sessions/{session_id}/valid-actions',
  status: 200,
  summary: 'The actions that are legal now',
  keyed: false,
  plays: true,
  problems: [],
  result: ValidActions,
  handle: (_services, { episode }) =>
    chain(episode.validActions(), actions => ({ valid_actions: actions && [...actions] })),
});
