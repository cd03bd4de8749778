import type { JsonObject } from '../../../shared/json.ts';
import type { TooManySessions } from '../../sessions/limits/admission.ts';

/** Describes the limit that kept a client from one more session. */
export function capacityOf({ open, most }: TooManySessions): JsonObject {
  return { active_sessions: open, max_sessions: most };
}
