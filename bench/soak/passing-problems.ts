import type { ProblemCode } from '../../env-server/problems.ts';

/** Problems after which the same request is sent again. */
export const AGAIN = new Set<ProblemCode>([
  'draining',
  'worker_unavailable',
  'too_many_sessions',
  'too_many_requests',
  'remote_unavailable',
  'step_timeout',
  // The store that replicas share starts again; nothing was acknowledged, and the request key keeps it from happening twice.
  'storage_failed',
]);
/** Problems of a service that may hang up. */
export const OF_SERVICE = new Set<ProblemCode>(['remote_failed', 'environment_fault']);
export const GONE = new Set<ProblemCode>(['unknown_session', 'session_expired']);
/** Operations that open sessions. Those that their client does not hear of in time expire. */
export const OPENING = new Set(['create', 'clone']);
