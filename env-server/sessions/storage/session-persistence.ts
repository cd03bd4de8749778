import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import { Journal } from '../../persistence/journal/journal.ts';
import {
  dropSegments,
  inheritedSegments,
  type JournalFiles,
  type JournalWriter,
  journalFolder,
  type Segment,
} from '../../persistence/journal/segments.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { RetryTimer } from '../../persistence/retry-timer.ts';
import { type RowDurability, type SessionChanges, SessionRows } from '../../persistence/session-rows.ts';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import { DatabaseThread } from '../../persistence/thread/database-thread.ts';
import type { EndedSession } from '../ended.ts';
import type { SessionManager } from '../manager.ts';
import type { SessionOwnership } from '../placement.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import type { Durability } from './durability.ts';
import { lostReason } from './lost-reason.ts';
import { SessionRecorder } from './recorder.ts';
import { Resumption } from './resumption.ts';
import { SessionLoader } from './session-loader.ts';
import { changedOf, savedOf, unsavedOf } from './session-selection.ts';
import {
  batchesOf,
  changesOf,
  endedItems,
  newReplies,
  replyItems,
  type StoredItem,
  StoredItems,
} from './stored-items.ts';
import { logUnsaved } from './unsaved-report.ts';

/** What a checkpoint may hold up everything else at once. */
const SLICE_MS = 4;
const MS_PER_S = 1000;
const BYTES_PER_MB = 1024 * 1024;
/** Share of the journal's bytes that one segment has. */
const SEGMENT_SHARE = 1 / 8;
/** Share of them that may wait in memory while the disk takes none. */
const WAITING_SHARE = 1 / 8;
/** A write of the journal is a copy to the kernel: on a sound disk it takes microseconds. */
const SLOW_WRITE_MS = 20;

const EVERYTHING: SessionOwnership = { ownsSession: () => true, ownsReply: () => true };

export interface PersistenceSettings {
  /** Folder of the database, whose lock is held; empty keeps nothing. */
  readonly data: string;
  readonly durability: Durability;
  /** Time between checkpoints; 0 makes none but those that the journal needs. */
  readonly checkpointSeconds: number;
  /** Of the journal of this process on the disk, in megabytes. */
  readonly journalMaxMb: number;
}

export interface SessionPersistenceParts {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly log: Logger;
  /** Which definition an environment id stands for now; another string after every change. */
  readonly editionOf: (envId: string) => string;
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
  readonly health: PersistenceHealth;
  readonly writer: JournalWriter;
  /** For one of several processes on one folder. Absent, everything is kept here. */
  readonly share?: SessionOwnership;
  /** Tests replace them. */
  readonly files?: JournalFiles;
}

/** @returns undefined where sessions end with their server: without a folder */
export function openSessionPersistence(
  settings: PersistenceSettings,
  parts: SessionPersistenceParts,
): SessionPersistence | undefined {
  return settings.data === '' ? undefined : new SessionPersistence(settings, parts);
}

/**
 * Keeps sessions beyond the process: journals what they do, writes those that changed at every checkpoint and all of them
 * at the end, and resumes them at the start.
 */
export class SessionPersistence {
  readonly #parts: SessionPersistenceParts;
  /** For the start, the end, and what cannot wait. */
  readonly #rows: SessionRows;
  /** For checkpoints. */
  readonly #thread: DatabaseThread;
  readonly #share: SessionOwnership;
  readonly #folder: string;
  readonly #journal: Journal | undefined;
  readonly #recorder: SessionRecorder | undefined;
  readonly #resumption: Resumption;
  readonly #items: StoredItems;
  readonly #retry = new RetryTimer(() => void this.checkpoint());
  readonly #checkpointMs: number;
  /** Of rows that are written while the server runs. */
  readonly #standing: RowDurability;
  /** Segments of earlier runs that no checkpoint covers yet. */
  #inherited: readonly Segment[];
  /** Ended, but not yet so in the database. */
  readonly #ended: EndedSession[] = [];
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  #begun = false;
  #finished = false;

  constructor(settings: PersistenceSettings, parts: SessionPersistenceParts) {
    const { sessions, editionOf } = parts;
    const { durability, data } = settings;
    this.#parts = parts;
    this.#rows = new SessionRows(data);
    this.#checkpointMs = durability === 'none' ? 0 : settings.checkpointSeconds * MS_PER_S;
    this.#share = parts.share ?? EVERYTHING;
    this.#folder = journalFolder(data);
    const synced = durability === 'fsync';
    this.#standing = synced ? 'synced' : durability === 'journal' ? 'journaled' : 'open';
    if (synced) this.#rows.sync();
    this.#thread = new DatabaseThread({ folder: data, synced });
    const lostBy = (session: Session) => lostReason(session, parts.catalog);
    this.#items = new StoredItems({
      editionOf,
      lostBy,
      onUnsaved: (...unsaved) => this.#noteUnsaved(...unsaved),
    });
    this.#resumption = new Resumption({
      ...parts,
      share: this.#share,
      onLost: ended => this.#recallEnd(ended),
    });
    this.#journal = this.#standing === 'open' ? undefined : this.#openJournal(settings, synced);
    this.#inherited = this.#journal?.inherited ?? inheritedSegments(this.#folder, parts.writer);
    this.#recorder =
      this.#journal &&
      new SessionRecorder(this.#journal, {
        editionOf,
        lostBy,
        onTooLarge: session => this.#storeNow(session),
        onReplyTooLarge: () => void this.checkpoint(),
      });
    sessions.recorder = this.#recorder;
    sessions.onEnd = ended => this.#ended.push(ended);
  }

  #openJournal({ journalMaxMb }: PersistenceSettings, synced: boolean): Journal {
    const { health, writer, files } = this.#parts;
    const maxBytes = journalMaxMb * BYTES_PER_MB;
    return new Journal(
      {
        folder: this.#folder,
        writer,
        synced,
        segmentBytes: maxBytes * SEGMENT_SHARE,
        maxBytes,
        maxWaitingBytes: maxBytes * WAITING_SHARE,
        slowWriteMs: SLOW_WRITE_MS,
      },
      { health, files, onPressure: () => this.#relieve() },
    );
  }

  /**
   * Opens the stored sessions again. What the journal has of them is done again meanwhile, see
   * `SessionManager.resumption`. Call it once, when their environments are there.
   */
  start(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const resumed = new SessionLoader({
      ...this.#parts,
      rows,
      share: this.#share,
      resumption: this.#resumption,
      onEnded: ended => this.#recallEnd(ended),
    }).load();
    const marks = [{ ids: resumed, standing: this.#standing }];
    rows.write({ ended: this.#ended, marks, clock: sessions.clock.moment });
    rows.hurry();
    this.#ended.length = 0;
    if (this.#inherited.length === 0) {
      this.#begin();
      return;
    }
    sessions.resumption = this.#resumption
      .run(this.#folder, this.#inherited)
      .catch(error => this.#giveUpReplay(error))
      .then(() => this.#begin());
  }

  #recallEnd(ended: EndedSession): void {
    this.#parts.sessions.recallEnded(ended);
    this.#ended.push(ended);
  }

  #giveUpReplay(error: unknown): void {
    const { log, sessions } = this.#parts;
    log.error(
      { err: error },
      'the journal could not be read to its end: sessions may stand before what their clients saw',
    );
    for (const session of sessions.open()) session.rollBack();
  }

  /** All sessions are there. */
  #begin(): void {
    this.#parts.sessions.resumption = undefined;
    if (this.#finished) return;
    this.#begun = true;
    this.#recorder?.begin();
    if (this.#inherited.length > 0) void this.checkpoint();
    if (this.#checkpointMs === 0) return;
    this.#timer = setInterval(() => this.#relieve(), this.#checkpointMs).unref();
  }

  /** A checkpoint is due, unless one that failed is to be repeated later. */
  #relieve(): void {
    if (this.#begun && !this.#finished && !this.#retry.pending) void this.checkpoint();
  }

  /** Writes what changed since the last one, a little at a time. A failure is told, and made good by the next. */
  checkpoint(): Promise<void> {
    this.#underWay ??= this.#checkpoint()
      .then(
        () => {
          if (this.#finished) return;
          this.#retry.succeeded();
          this.#parts.health.succeeded('checkpoint');
        },
        error => this.#noteFailure(error),
      )
      .finally(() => {
        this.#underWay = undefined;
      });
    return this.#underWay;
  }

  #noteFailure(error: unknown): void {
    // At the end everything is written at once.
    if (this.#finished) return;
    this.#parts.health.failed('checkpoint', error);
    this.#retry.failed();
  }

  /**
   * Writes everything and closes the database, for a server that ends. Sessions that cannot be kept end here; what cannot
   * be written is told in the log. Does nothing the second time.
   */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    clearInterval(this.#timer);
    this.#retry.stop();
    this.#thread.seal();
    const { sessions } = this.#parts;
    if (this.#begun) {
      for (const session of sessions.open()) {
        const reason = lostReason(session, this.#parts.catalog);
        if (reason !== undefined) sessions.lose(session, reason);
      }
      const error = this.#writeLast();
      this.#recorder?.end();
      const waiting = this.#journal?.close() ?? 0;
      if (error === undefined) this.#dropJournal();
      else
        logUnsaved(this.#parts, this.#items.writing, error, {
          journal: this.#journal !== undefined,
          waiting,
        });
    } else {
      // The next start begins where this one did.
      this.#resumption.stop();
      this.#journal?.close();
    }
    this.#rows.close();
    void this.#thread.close();
    sessions.onEnd = undefined;
  }

  /** @returns why not all could be written */
  #writeLast(): unknown {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    rows.bePatient();
    const replies = newReplies(sessions.clientReplies());
    const { writing } = this.#items;
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
      for (const items of [this.#items.of(changed, 'atRest'), replyItems(replies, sessions.now())]) {
        for (const batch of batchesOf(items, Number.POSITIVE_INFINITY)) tryTo(() => this.#put(batch));
      }
      tryTo(() =>
        rows.write({
          marks: [
            { ids: savedOf(sessions.open(), writing), standing: 'atRest' },
            { ids: unsavedOf(sessions.open()), standing: 'open' },
          ],
          ended: this.#ended,
          ...this.#housekeeping(),
        }),
      );
    } catch (error) {
      failure ??= error;
      for (const session of changedOf(changed)) writing.add(session);
    }
    return failure;
  }

  /** The database has everything that the journal has. */
  #dropJournal(): void {
    try {
      this.#journal?.release(Number.POSITIVE_INFINITY);
      this.#dropInherited();
    } catch (error) {
      // What is left of it is covered by the database.
      this.#parts.log.warn({ err: error }, 'the journal could not be deleted');
    }
  }

  #dropInherited(): void {
    if (this.#inherited.length === 0) return;
    if (this.#journal) this.#journal.releaseInherited();
    else dropSegments(this.#folder, this.#inherited, this.#parts.writer);
    this.#inherited = [];
  }

  async #checkpoint(): Promise<void> {
    const { sessions } = this.#parts;
    const mark = this.#journal?.rotate();
    // A reply that names a session must not be there without it.
    const replies = newReplies(sessions.clientReplies());
    const ended = this.#ended.slice();
    const { writing } = this.#items;
    try {
      await this.#inSlices(this.#items.of(changedOf(sessions.open()), this.#standing));
      await this.#inSlices(endedItems(ended));
      await this.#inSlices(replyItems(replies, sessions.now()));
    } catch (error) {
      for (const session of writing) session.changed = true;
      writing.clear();
      throw error;
    }
    if (this.#finished) return;
    this.#ended.splice(0, ended.length);
    for (const { memory, changes } of replies) memory.stored(changes);
    const marks = [{ ids: [...unsavedOf(sessions.open())], standing: 'open' as const }];
    await this.#thread.write('writeSessions', { marks, ...this.#housekeeping() });
    if (this.#finished) return;
    if (mark !== undefined) this.#journal?.release(mark);
    this.#dropInherited();
  }

  /** Writes items a few at a time, as many as take no longer than the slice, while others have their turn. */
  async #inSlices(items: Iterable<StoredItem>): Promise<void> {
    for (const batch of batchesOf(items, SLICE_MS)) {
      if (this.#finished) return;
      await this.#thread.write('writeSessions', changesOf(batch));
      if (this.#finished) return;
      for (const { stored } of batch) stored?.();
    }
  }

  /** Writes a session at once, as the journal does not have all of it. */
  #storeNow(session: Session): void {
    try {
      for (const batch of batchesOf(this.#items.of([session], this.#standing), Number.POSITIVE_INFINITY)) {
        this.#put(batch);
      }
      // A checkpoint under way may write what it was before.
      if (this.#underWay) session.changed = true;
    } catch (error) {
      this.#items.writing.delete(session);
      session.changed = true;
      this.#noteFailure(error);
    }
  }

  /** Writes items, all or none. */
  #put(items: readonly StoredItem[]): void {
    this.#rows.write(changesOf(items));
    for (const { stored } of items) stored?.();
  }

  #housekeeping(): SessionChanges {
    const { sessions } = this.#parts;
    const now = sessions.now();
    return {
      forget: { now, droppedBefore: now - 2 * sessions.keepKeysMs },
      clock: sessions.clock.moment,
    };
  }

  #noteUnsaved({ id }: Session, error: Error): void {
    this.#parts.sessions.unsaved++;
    this.#parts.log.error({ session_id: id, err: error }, `session ${id} cannot be stored: ${error.message}`);
  }
}
