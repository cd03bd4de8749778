import type { DatabaseSync } from 'node:sqlite';
import { isDamage } from './damage.ts';
import { columnsOf } from './stored-tables.ts';

const LOST = 'parts of it were lost when the database was damaged';
const NAMES = 'SELECT kind, number FROM session_parts WHERE session_id = ?';
/** The same from the index alone, which often still has the content of a damaged page of the table. */
const NAMES_IN_INDEX = NAMES.replace('WHERE', 'INDEXED BY sqlite_autoindex_session_parts_1 WHERE');

/** Ends of a document's parts: parts with smaller numbers of their kind belong to it. */
interface Ends {
  readonly [kind: string]: number;
}

/**
 * Marks the sessions of a repaired database as lost that have lost parts: without an action a session would be in
 * another state, without a reply or a dropped key it would carry out a repeated request again.
 * @param whole true if all rows of parts could be read
 * @returns their ids
 */
export function loseIncompleteSessions(
  damaged: DatabaseSync,
  repaired: DatabaseSync,
  whole: boolean,
): string[] {
  const lost: string[] = [];
  const namesBefore = partNamesIn(damaged);
  const namesNow = repaired.prepare(NAMES);
  const sessions = repaired.prepare(
    'SELECT session_id AS id, document FROM sessions WHERE lost IS NULL AND document IS NOT NULL ORDER BY rowid',
  );
  for (const { id, document } of sessions.iterate() as Iterable<{ id: string; document: string }>) {
    const ends = (JSON.parse(document) as { readonly ends?: Ends } | null)?.ends;
    // A document of version 1 is complete in itself.
    if (!ends) continue;
    const kept = new Set(ownParts(namesNow.all(id) as unknown as PartName[], ends));
    const before = namesBefore(id);
    const incomplete = before
      ? ownParts(before, ends).some(name => !kept.has(name))
      : // Parts that a session no longer needs leave gaps, too, and look like lost ones.
        !whole && kept.size < Object.values(ends).reduce((sum, end) => sum + end, 0);
    if (incomplete) lost.push(id);
  }
  const lose = repaired.prepare('UPDATE sessions SET lost = ? WHERE session_id = ?');
  for (const id of lost) lose.run(LOST, id);
  return lost;
}

interface PartName {
  readonly kind: string;
  readonly number: number;
}

/** @returns names of the session's parts; undefined where damage hides them */
function partNamesIn(damaged: DatabaseSync): (sessionId: string) => PartName[] | undefined {
  if (columnsOf(damaged, 'session_parts').length === 0) return () => undefined;
  const names = damaged.prepare(NAMES_IN_INDEX);
  return sessionId => {
    try {
      return names.all(sessionId) as unknown as PartName[];
    } catch (error) {
      if (isDamage(error)) return undefined;
      throw error;
    }
  };
}

function ownParts(names: readonly PartName[], ends: Ends): string[] {
  return names
    .filter(({ kind, number }) => number < ends[kind])
    .map(({ kind, number }) => `${kind} ${number}`);
}

/** @returns number of parts removed because their session's row was lost */
export function dropPartsWithoutSession(repaired: DatabaseSync): number {
  const { changes } = repaired
    .prepare('DELETE FROM session_parts WHERE session_id NOT IN (SELECT session_id FROM sessions)')
    .run();
  return Number(changes);
}
