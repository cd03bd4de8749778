import type { ProblemCode } from '../../env-server/problems.ts';
import type { Json } from '../../shared/json.ts';
import type { Item } from './transport.ts';

/** An id that no session has. */
export const NOBODY = 'sNobodyHasThis';

/**
 * Requests that are to be refused, with the code of the problem.
 * @param step the session's next
 */
export function badRequests(
  session_id: string,
  action: Json,
  step: number,
): readonly (readonly [Item, ProblemCode])[] {
  return [
    [{ op: 'step', session_id, action: { wrong: true } }, 'invalid_action'],
    [{ op: 'step', session_id, action: null }, 'invalid_action'],
    [{ op: 'step', session_id, action, expected_step: step + 2 }, 'wrong_step'],
    [{ op: 'step', session_id, action, expected_step: -1 }, 'invalid_request'],
    [{ op: 'get', session_id: NOBODY }, 'unknown_session'],
    [{ op: 'restore', session_id, snapshot_id: 'none' }, 'unknown_snapshot'],
    [{ op: 'create', env_id: 'Nothing-v9' }, 'unknown_environment'],
    [{ op: 'create', env_id: 'FrozenLake-v0', config: { size: -1 } }, 'invalid_request'],
  ];
}
