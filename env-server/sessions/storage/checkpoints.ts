import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Journal } from '../../persistence/journal/journal.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { RetryTimer } from '../../persistence/retry-timer.ts';
import type { RowDurability } from '../../persistence/session-rows.ts';
import { DatabaseThread } from '../../persistence/thread/database-thread.ts';
import type { SessionManager } from '../manager.ts';
import { changedOf, housekeepingOf, unsavedOf } from './session-selection.ts';
import {
  batchesOf,
  changesOf,
  endedItems,
  newReplies,
  replyItems,
  type StoredItem,
  type StoredItems,
} from './stored-items.ts';
import type { UnwrittenEnds } from './unwritten-ends.ts';

/** Milliseconds for which a checkpoint may hold up everything else at once. */
const SLICE_MS = 4;

export interface CheckpointParts {
  /** Folder of the database. */
  readonly folder: string;
  /** Durability of rows that are written while the server runs. */
  readonly standing: RowDurability;
  readonly sessions: SessionManager;
  readonly items: StoredItems;
  readonly ended: UnwrittenEnds;
  readonly health: PersistenceHealth;
  /** Called when the database has everything that earlier runs have journaled. */
  readonly onCovered: () => void;
}

/** Writes what changed of sessions to the database, in a thread and a little at a time, while others have their turn. */
export class Checkpoints {
  readonly #parts: CheckpointParts;
  readonly #thread: DatabaseThread;
  readonly #retry = new RetryTimer(() => void this.take());
  #journal: Journal | undefined;
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  /** Called when the next one that begins, or one after it, has succeeded. */
  #awaiting: (() => void)[] = [];
  #begun = false;
  #ended = false;

  constructor(parts: CheckpointParts) {
    this.#parts = parts;
    this.#thread = new DatabaseThread({ folder: parts.folder, synced: parts.standing === 'synced' });
  }

  /**
   * From now on they are taken when they are due.
   * @param everyMs 0 takes none but those that are asked for
   */
  begin(everyMs: number, journal: Journal | undefined): void {
    this.#begun = true;
    this.#journal = journal;
    if (everyMs > 0) this.#timer = setInterval(() => this.due(), everyMs).unref();
  }

  /** One is due, unless one that failed is to be repeated later. */
  due(): void {
    if (this.#begun && !this.#ended && !this.#retry.pending) void this.take();
  }

  /** Writes what changed since the last one. A failure is logged, and made good by the next. */
  take(): Promise<void> {
    this.#underWay ??= this.#write()
      .then(
        () => {
          if (this.#ended) return;
          this.#retry.succeeded();
          this.#parts.health.succeeded('checkpoint');
        },
        error => this.#fail(error),
      )
      .finally(() => {
        this.#underWay = undefined;
      });
    return this.#underWay;
  }

  /**
   * Takes one that has everything that is done in this turn: one that is under way may have passed some of it.
   * @returns a promise that resolves when it has succeeded, however often it must be tried; never after the end
   */
  async covering(): Promise<void> {
    await nextTurn();
    const covered = new Promise<void>(resolve => this.#awaiting.push(resolve));
    await this.#underWay;
    this.due();
    await covered;
  }

  /** From now on nothing is written; at most one change is just being written. */
  end(): void {
    this.#ended = true;
    clearInterval(this.#timer);
    this.#retry.stop();
    this.#thread.seal();
  }

  /** Ends the thread. */
  close(): Promise<void> {
    return this.#thread.close();
  }

  #fail(error: unknown): void {
    // At the end everything is written at once.
    if (this.#ended) return;
    this.#parts.health.failed('checkpoint', error);
    this.#retry.failed();
  }

  async #write(): Promise<void> {
    const { sessions, items, standing } = this.#parts;
    const awaiting = this.#awaiting.slice();
    const mark = this.#journal?.rotate();
    // A reply that names a session must not be there without it.
    const replies = newReplies(sessions.clientReplies());
    const ended = [...this.#parts.ended];
    try {
      await this.#inSlices(items.of(changedOf(sessions.open()), standing));
      await this.#inSlices(endedItems(ended));
      await this.#inSlices(replyItems(replies, sessions.now()));
    } catch (error) {
      items.giveUp();
      throw error;
    }
    if (this.#ended) return;
    this.#parts.ended.written(ended);
    for (const { memory, changes } of replies) memory.stored(changes);
    const marks = [{ ids: [...unsavedOf(sessions.open())], standing: 'open' as const }];
    await this.#thread.write('writeSessions', { marks, ...housekeepingOf(sessions) });
    if (this.#ended) return;
    if (mark !== undefined) this.#journal?.release(mark);
    this.#parts.onCovered();
    this.#awaiting.splice(0, awaiting.length);
    for (const resolve of awaiting) resolve();
  }

  /** Writes items a few at a time, as many as take no longer than the slice, while others have their turn. */
  async #inSlices(items: Iterable<StoredItem>): Promise<void> {
    for (const batch of batchesOf(items, SLICE_MS)) {
      if (this.#ended) return;
      await this.#thread.write('writeSessions', changesOf(batch));
      if (this.#ended) return;
      for (const { stored } of batch) stored?.();
    }
  }
}
