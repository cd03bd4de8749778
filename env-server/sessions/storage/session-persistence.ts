import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import type { Durability } from '../../persistence/durability.ts';
import { Journal } from '../../persistence/journal/journal.ts';
import {
  dropFiles,
  type JournalDisk,
  type JournalFile,
  journalFolder,
  listJournal,
} from '../../persistence/journal/journal-files.ts';
import type { PersistenceHealth } from '../../persistence/persistence-health.ts';
import { type RowDurability, SessionRows } from '../../persistence/session-rows.ts';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import type { EndedSession } from '../ended.ts';
import type { SessionManager } from '../manager.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { Checkpoints } from './checkpoints.ts';
import { writeLast } from './last-write.ts';
import { lostReason } from './lost-reason.ts';
import { SessionRecorder } from './recorder.ts';
import { Resumption } from './resumption.ts';
import { SessionLoader } from './session-loader.ts';
import { StoredItems } from './stored-items.ts';
import { UnwrittenEnds } from './unwritten-ends.ts';

const MS_PER_S = 1000;
const BYTES_PER_MB = 1024 * 1024;
/** Share of the journal's bytes that may wait in memory while the disk takes none. */
const WAITING_SHARE = 1 / 8;
/** A write of the journal is a copy to the kernel: on a sound disk it takes microseconds. */
const SLOW_WRITE_MS = 20;
/** Sessions that are named when they cannot be saved. */
const MAX_NAMED = 100;

export interface PersistenceSettings {
  /** Folder of the database; this process holds its lock. An empty path keeps nothing. */
  readonly data: string;
  readonly durability: Durability;
  /** Time between checkpoints; 0 makes none but those that the journal needs. */
  readonly checkpointSeconds: number;
  /** Greatest size of the journal on the disk, in megabytes. */
  readonly journalMaxMb: number;
}

export interface SessionPersistenceParts {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly log: Logger;
  /** Current definition of an environment id; another string after every change. */
  readonly editionOf: (envId: string) => string;
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
  readonly health: PersistenceHealth;
  /** Disk of the journal; tests replace it. */
  readonly disk?: JournalDisk;
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
  /** Rows for the start and the end. */
  readonly #rows: SessionRows;
  readonly #checkpoints: Checkpoints;
  readonly #folder: string;
  readonly #journal: Journal | undefined;
  readonly #recorder: SessionRecorder | undefined;
  readonly #resumption: Resumption;
  readonly #items: StoredItems;
  readonly #checkpointMs: number;
  /** Durability of rows that are written while the server runs. */
  readonly #standing: RowDurability;
  /** Files of earlier runs that no checkpoint covers yet. */
  #inherited: readonly JournalFile[];
  readonly #ended = new UnwrittenEnds();
  #begun = false;
  #finished = false;

  constructor(settings: PersistenceSettings, parts: SessionPersistenceParts) {
    const { sessions, editionOf } = parts;
    const { durability, data } = settings;
    this.#parts = parts;
    this.#rows = new SessionRows(data);
    this.#checkpointMs = durability === 'none' ? 0 : settings.checkpointSeconds * MS_PER_S;
    this.#folder = journalFolder(data);
    const synced = durability === 'fsync';
    this.#standing = synced ? 'synced' : durability === 'journal' ? 'journaled' : 'open';
    if (synced) this.#rows.sync();
    const lostBy = (session: Session) => lostReason(session, parts.catalog);
    this.#items = new StoredItems({
      editionOf,
      lostBy,
      onUnsaved: (...unsaved) => this.#noteUnsaved(...unsaved),
    });
    this.#checkpoints = new Checkpoints({
      folder: data,
      standing: this.#standing,
      sessions,
      items: this.#items,
      ended: this.#ended,
      health: parts.health,
      onCovered: () => this.#dropInherited(),
    });
    this.#resumption = new Resumption({
      ...parts,
      onLost: ended => this.#recallEnd(ended),
    });
    this.#journal = this.#standing === 'open' ? undefined : this.#openJournal(settings, synced);
    this.#inherited = this.#journal?.inherited ?? listJournal(this.#folder);
    this.#recorder =
      this.#journal &&
      new SessionRecorder(this.#journal, {
        editionOf,
        lostBy,
        onTooLarge: () => this.#checkpoints.covering(),
      });
    sessions.recorder = this.#recorder;
    sessions.endListeners.add(this.#noteEnd);
  }

  #openJournal({ journalMaxMb }: PersistenceSettings, synced: boolean): Journal {
    const { health, disk } = this.#parts;
    const maxBytes = journalMaxMb * BYTES_PER_MB;
    return new Journal(
      {
        folder: this.#folder,
        synced,
        maxBytes,
        maxWaitingBytes: maxBytes * WAITING_SHARE,
        slowWriteMs: SLOW_WRITE_MS,
      },
      { health, disk, onPressure: () => this.#checkpoints.due() },
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
      resumption: this.#resumption,
      onEnded: ended => this.#recallEnd(ended),
    }).load();
    const marks = [{ ids: resumed, standing: this.#standing }];
    rows.write({ ended: this.#ended, marks, clock: sessions.clock.moment });
    rows.hurry();
    this.#ended.written(this.#ended);
    if (this.#inherited.length === 0) {
      this.#begin();
      return;
    }
    sessions.resumption = this.#resumption
      .run(this.#folder, this.#inherited)
      .catch(error => this.#giveUpReplay(error))
      .then(() => this.#begin());
  }

  readonly #noteEnd = (ended: EndedSession, { image }: Session): void => {
    this.#ended.add(ended, image !== undefined, this.#parts.sessions.now());
  };

  #recallEnd(ended: EndedSession): void {
    const { sessions } = this.#parts;
    sessions.recallEnded(ended);
    this.#ended.add(ended, true, sessions.now());
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
    this.#checkpoints.begin(this.#checkpointMs, this.#journal);
    if (this.#inherited.length > 0) void this.#checkpoints.take();
  }

  /** Writes what changed since the last one, a little at a time. A failure is logged, and made good by the next. */
  checkpoint(): Promise<void> {
    return this.#checkpoints.take();
  }

  /**
   * Writes everything and closes the database, for a server that ends. Sessions that cannot be kept end here; the log
   * names what cannot be written. Does nothing the second time.
   */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    this.#checkpoints.end();
    const { sessions } = this.#parts;
    if (this.#begun) {
      for (const session of sessions.open()) {
        const reason = lostReason(session, this.#parts.catalog);
        if (reason !== undefined) sessions.lose(session, reason);
      }
      const error = writeLast({ rows: this.#rows, sessions, items: this.#items, ended: this.#ended });
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
    void this.#checkpoints.close();
    sessions.endListeners.delete(this.#noteEnd);
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
    else dropFiles(this.#folder, this.#inherited);
    this.#inherited = [];
  }

  #noteUnsaved({ id }: Session, error: Error): void {
    this.#parts.sessions.unsaved++;
    this.#parts.log.error({ session_id: id, err: error }, `session ${id} cannot be stored: ${error.message}`);
  }
}

/**
 * Logs what the next start will miss.
 * @param unwritten sessions that the database does not have whole
 * @param journal whether there is one, and how many bytes of it were not written
 */
function logUnsaved(
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
