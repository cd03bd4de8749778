import { setImmediate as nextTurn } from 'node:timers/promises';
import type { SqliteSessionStore } from '../../store/sqlite-session-store.ts';
import { type ReopenParts, reopen } from './taken-sessions.ts';

export interface TakingParts extends ReopenParts {
  readonly store: SqliteSessionStore;
  /** Stops between two sessions. */
  readonly signal: AbortSignal;
}

/**
 * Opens every session that earlier servers left, or notes how it ended.
 * @param sliceMs lets others have their turn after so long
 * @returns ids of those that are as the database has them
 */
export async function takeAll(parts: TakingParts, sliceMs = Number.POSITIVE_INFINITY): Promise<string[]> {
  const { sessions, store, log, signal } = parts;
  const resumed: string[] = [];
  const counts = { resumed: 0, rolled_back: 0, lost: 0 };
  let sliceEnd = performance.now() + sliceMs;
  for (const id of signal.aborted ? [] : store.ids()) {
    if (performance.now() >= sliceEnd) {
      await nextTurn();
      sliceEnd = performance.now() + sliceMs;
    }
    if (signal.aborted) return resumed;
    const outcome = await take(parts, id);
    if (outcome === undefined) continue;
    counts[outcome]++;
    if (outcome === 'lost') continue;
    if (outcome === 'rolled_back') counts.resumed++;
    if (sessions.get(id)?.changed === false) resumed.push(id);
  }
  if (counts.resumed + counts.lost > 0) log.info(counts, `resumed ${counts.resumed} sessions`);
  return resumed;
}

/** @returns undefined for a session that had ended already, or has expired */
async function take(parts: TakingParts, id: string): Promise<'resumed' | 'rolled_back' | 'lost' | undefined> {
  const { sessions, store } = parts;
  const forgetMs = sessions.forgetAt - sessions.now();
  const taken = store.take(id, undefined, undefined, forgetMs);
  let ended = taken.state === 'ended' ? taken.tombstone : undefined;
  if (taken.state === 'load') {
    const found = await reopen(parts, id, taken.content);
    if (!('ending' in found)) {
      if (!taken.content.isBehind) return 'resumed';
      found.rollBack();
      return 'rolled_back';
    }
    ended = found;
    store.end(id, undefined, ended, forgetMs);
  }
  const { forgetAt = sessions.forgetAt } = ended ?? {};
  if (ended && forgetAt > sessions.now()) sessions.recallEnded({ id, reason: null, ...ended, forgetAt });
  return ended?.ending === 'session_lost' ? 'lost' : undefined;
}
