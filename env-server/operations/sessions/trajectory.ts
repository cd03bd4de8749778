import { chain } from '../../environments/core/maybe-promise.ts';
import { sessionOperation } from '../operation.ts';
import { Trajectory } from '../schemas.ts';

export const trajectory = sessionOperation({
  name: 'trajectory',
  method: 'GET',
  path: '/v1/sessions/{session_id}/trajectory',
  status: 200,
  summary: 'The episode so far',
  description:
    'Seed, options, every action and its result. Over REST as JSON Lines, a record a line; replaying the actions gives the same states.',
  keyed: false,
  plays: true,
  problems: ['unsupported'],
  result: Trajectory,
  mediaTypes: ['application/jsonl'],
  handle: (_services, session) => chain(session.trajectory(), records => ({ records })),
  represent: ({ records }) => ({
    contentType: 'application/jsonl; charset=utf-8',
    body: `${records.map(record => JSON.stringify(record)).join('\n')}\n`,
  }),
});
