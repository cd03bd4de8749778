import type { JsonObject } from '../../../shared/json.ts';
import type { Services } from '../../operations/operation.ts';
import type { SessionLimits } from '../../sessions/admission.ts';

/** What a client is told of the limit that kept it from one more session of an environment. */
export function capacityOf(
  { sessions, catalogue }: Services,
  limits: SessionLimits,
  envId: string,
): JsonObject {
  const ofEnvironment = catalogue.sessionsOf(envId);
  if (sessions.size >= limits.maxSessions) return full(sessions.size, limits.maxSessions);
  if (ofEnvironment >= limits.maxSessionsPerEnvironment) {
    return full(ofEnvironment, limits.maxSessionsPerEnvironment);
  }
  return full(limits.maxSessionsPerClient, limits.maxSessionsPerClient);
}

const full = (active: number, most: number): JsonObject => ({ active_sessions: active, max_sessions: most });
