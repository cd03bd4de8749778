import { sessionOperation } from '../operation.ts';
import { Snapshot } from '../schemas/session.ts';

export const snapshot = sessionOperation({
  name: 'snapshot',
  method: 'POST',
  path: '/v1/sessions/{session_id}/snapshot',
  status: 201,
  summary: 'Remember the state',
  description: 'State and random generator; restoring gives the same future. Lives as long as the session.',
  keyed: true,
  problems: [
    'too_many_snapshots',
    'unsupported',
    'session_budget_exceeded',
    'token_budget_exceeded',
    'server_budget_exceeded',
  ],
  result: Snapshot,
  handle: (_services, session) => ({ snapshot_id: session.snapshot() }),
});
