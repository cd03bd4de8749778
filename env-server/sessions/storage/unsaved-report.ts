import type { Logger } from 'pino';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import type { SessionManager } from '../manager.ts';
import type { Session } from '../session.ts';

/** Sessions that are named when they cannot be saved. */
const MAX_NAMED = 100;

/**
 * Logs what the next start will miss.
 * @param unwritten sessions that the database does not have whole
 * @param journal whether there is one, and how many bytes of it were not written
 */
export function logUnsaved(
  { log, sessions }: { readonly log: Logger; readonly sessions: SessionManager },
  unwritten: Iterable<Session>,
  error: unknown,
  { journal, waiting }: { readonly journal: boolean; readonly waiting: number },
): void {
  const ids = [...unwritten].filter(({ closed }) => !closed).map(({ id }) => id);
  const details = {
    err: error,
    sessions: ids.slice(0, MAX_NAMED),
    count: ids.length,
    journal_bytes_lost: waiting,
  };
  const what = `${ids.length} of ${sessions.size} sessions could not be written to the database`;
  const reason = storageFaultOf(error)?.reason ?? (error as Error).message;
  if (journal && waiting === 0) {
    log.error(details, `${what}: ${reason}; the journal has them, and the next start resumes them from it`);
  } else if (journal) {
    log.error(
      details,
      `${what}: ${reason}; the journal misses the last ${waiting} bytes, so they may stand before what their clients saw last: ${named(ids)}`,
    );
  } else {
    log.error(
      details,
      `${what}: ${reason}; they stand where they were last stored, or are lost: ${named(ids)}`,
    );
  }
}

function named(ids: readonly string[]): string {
  const more = ids.length - MAX_NAMED;
  return ids.slice(0, MAX_NAMED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}
