import type { SessionRows } from '../../persistence/session-rows.ts';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import type { SessionManager } from '../manager.ts';
import { changedOf, housekeepingOf, savedOf, unsavedOf } from './session-selection.ts';
import {
  batchesOf,
  changesOf,
  newReplies,
  replyItems,
  type StoredItem,
  type StoredItems,
} from './stored-items.ts';
import type { UnwrittenEnds } from './unwritten-ends.ts';

export interface LastWriteParts {
  readonly rows: SessionRows;
  readonly sessions: SessionManager;
  readonly items: StoredItems;
  readonly ended: UnwrittenEnds;
}

/**
 * Writes everything that the database does not have, for a server that ends; `items.writing` holds the sessions that could
 * not be written.
 * @returns why not all could be written
 */
export function writeLast({ rows, sessions, items, ended }: LastWriteParts): unknown {
  rows.bePatient();
  const replies = newReplies(sessions.clientReplies());
  const { writing } = items;
  const changed = [...changedOf(sessions.open(), [...writing])];
  let failure: unknown;
  const tryTo = (write: () => void): void => {
    try {
      write();
    } catch (error) {
      failure ??= error;
      // It would be waited for again and again.
      if (storageFaultOf(error) === undefined) throw error;
    }
  };
  try {
    for (const some of [items.of(changed, 'atRest'), replyItems(replies, sessions.now())]) {
      for (const batch of batchesOf(some, Number.POSITIVE_INFINITY)) tryTo(() => put(rows, batch));
    }
    tryTo(() =>
      rows.write({
        marks: [
          { ids: savedOf(sessions.open(), writing), standing: 'atRest' },
          { ids: unsavedOf(sessions.open()), standing: 'open' },
        ],
        ended,
        ...housekeepingOf(sessions),
      }),
    );
  } catch (error) {
    failure ??= error;
    for (const session of changedOf(changed)) writing.add(session);
  }
  return failure;
}

/** Writes items, all or none. */
function put(rows: SessionRows, items: readonly StoredItem[]): void {
  rows.write(changesOf(items));
  for (const { stored } of items) stored?.();
}
