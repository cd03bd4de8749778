import type { SessionChanges } from '../../persistence/session-rows.ts';
import type { SessionManager } from '../manager.ts';
import type { Session } from '../session.ts';

/** Sessions that changed, and those of a write that was not finished. */
export function* changedOf(
  sessions: Iterable<Session>,
  unfinished: readonly Session[] = [],
): Generator<Session> {
  const also = new Set(unfinished);
  for (const session of sessions) if (session.changed || also.has(session)) yield session;
}

export function* savedOf(sessions: Iterable<Session>, unwritten: ReadonlySet<Session>): Generator<string> {
  for (const session of sessions) {
    if (session.unsaved === undefined && !unwritten.has(session)) yield session.id;
  }
}

export function* unsavedOf(sessions: Iterable<Session>): Generator<string> {
  for (const { id, unsaved } of sessions) if (unsaved !== undefined) yield id;
}

/** Forgotten sessions, and the time, which every complete write includes. */
export function housekeepingOf(sessions: SessionManager): SessionChanges {
  const now = sessions.now();
  return {
    forget: { now, droppedBefore: now - 2 * sessions.keepKeysMs },
    clock: sessions.clock.moment,
  };
}
