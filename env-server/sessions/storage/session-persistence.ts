import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import { Journal } from '../../persistence/journal/journal.ts';
import { bootId } from '../../persistence/journal/segment-writer.ts';
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
import {
  type RowDurability,
  type SessionChanges,
  type SessionRow,
  SessionRows,
} from '../../persistence/session-rows.ts';
import { storageFaultOf } from '../../persistence/storage-problem.ts';
import type { EndedSession, EndReason } from '../ended.ts';
import type { SessionManager } from '../manager.ts';
import type { SessionOwnership } from '../placement.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import type { Durability } from './durability.ts';
import { SessionRecorder } from './recorder.ts';
import { Resumption } from './resumption.ts';
import { hashesOf, SessionImage } from './session-image.ts';
import {
  batchesOf,
  changesOf,
  DOCUMENT_VERSION,
  endedItems,
  type NewReplies,
  replyItems,
  type StoredItem,
  StoredItems,
} from './stored-items.ts';
import {
  fromVersion1,
  type SessionOfVersion1,
  type StoredHead,
  type StoredReply,
  type StoredSession,
  type StoredSettings,
} from './stored-session.ts';

/** The first form, which is still read. */
const ONE_DOCUMENT = 1;
/** What a checkpoint may hold up everything else at once. */
const SLICE_MS = 4;
const MS_PER_S = 1000;
const BYTES_PER_MB = 1024 * 1024;
/** Share of the journal's bytes that one segment has. */
const SEGMENT_SHARE = 1 / 8;
/** Share of them that may wait in memory while the disk takes none. */
const WAITING_SHARE = 1 / 8;
/** Sessions that are named when they cannot be saved. */
const MAX_NAMED = 100;

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
  readonly #rows: SessionRows;
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
  /** The machine went down since the database was last written. */
  #machineEnded = false;
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
    const lostBy = (session: Session) => this.#lostBy(session);
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
    const moment = rows.clock();
    if (moment) sessions.goOnFrom(moment);
    this.#machineEnded = moment !== undefined && moment.boot !== bootId();
    const now = sessions.now();
    for (const row of rows.ended()) {
      if (!this.#share.ownsSession(row.id)) continue;
      // What the journal still has of it.
      this.#resumption.covers(row.id, Number.POSITIVE_INFINITY, true);
      if (row.forgetAt > now) sessions.recallEnded(row as EndedSession);
    }
    this.#recallReplies();
    this.#recallSessions();
    if (this.#inherited.length === 0) {
      this.#begin();
      return;
    }
    sessions.resumption = this.#resumption
      .run(this.#folder, this.#inherited)
      .catch(error => this.#giveUpReplay(error))
      .then(() => this.#begin());
  }

  #recallSessions(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const resumed: string[] = [];
    const counts = { resumed: 0, rolled_back: 0, lost: 0 };
    for (const row of rows.sessions()) {
      if (!this.#share.ownsSession(row.id)) continue;
      const end = this.#recall(row);
      if (end === undefined) {
        counts.resumed++;
        // Others stay as they are until they are written with what is known of them.
        if (sessions.get(row.id)?.changed) counts.rolled_back++;
        else resumed.push(row.id);
        continue;
      }
      if (end.ending === 'session_lost') counts.lost++;
      this.#recallEnd(end);
      this.#resumption.covers(row.id, Number.POSITIVE_INFINITY, true);
    }
    const marks = [{ ids: resumed, standing: this.#standing }];
    rows.write({ ended: this.#ended, marks, clock: sessions.clock.moment });
    rows.hurry();
    this.#ended.length = 0;
    if (counts.resumed + counts.lost > 0) this.#parts.log.info(counts, `resumed ${counts.resumed} sessions`);
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
    this.#parts.health.failed('checkpoint', error);
    if (!this.#finished) this.#retry.failed();
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
    const { sessions } = this.#parts;
    if (this.#begun) {
      for (const session of sessions.open()) {
        const reason = this.#lostBy(session);
        if (reason !== undefined) sessions.lose(session, reason);
      }
      const error = this.#writeLast();
      this.#recorder?.end();
      const waiting = this.#journal?.close() ?? 0;
      if (error === undefined) this.#dropJournal();
      else this.#tellUnsaved(error, waiting);
    } else {
      // The next start begins where this one did.
      this.#resumption.stop();
      this.#journal?.close();
    }
    this.#rows.close();
    sessions.onEnd = undefined;
  }

  /** @returns why not all could be written */
  #writeLast(): unknown {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    rows.bePatient();
    const replies = this.#freshReplies();
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

  /** Says what the next start will miss. */
  #tellUnsaved(error: unknown, waiting: number): void {
    const { log, sessions } = this.#parts;
    const ids = [...this.#items.writing].filter(({ closed }) => !closed).map(({ id }) => id);
    const details = {
      err: error,
      sessions: ids.slice(0, MAX_NAMED),
      count: ids.length,
      journal_bytes_lost: waiting,
    };
    const what = `${ids.length} of ${sessions.size} sessions could not be written to the database`;
    const reason = storageFaultOf(error)?.reason ?? (error as Error).message;
    if (this.#journal && waiting === 0) {
      log.error(details, `${what}: ${reason}; the journal has them, and the next start resumes them from it`);
    } else if (this.#journal) {
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

  async #checkpoint(): Promise<void> {
    const { sessions } = this.#parts;
    const mark = this.#journal?.rotate();
    // A reply that names a session must not be there without it.
    const replies = this.#freshReplies();
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
    const marks = [{ ids: unsavedOf(sessions.open()), standing: 'open' as const }];
    this.#rows.write({ marks, ...this.#housekeeping() });
    if (mark !== undefined) this.#journal?.release(mark);
    this.#dropInherited();
  }

  /** Writes items a few at a time, as many as take no longer than the slice, with room for others in between. */
  async #inSlices(items: Iterable<StoredItem>): Promise<void> {
    for (const batch of batchesOf(items, SLICE_MS)) {
      if (this.#finished) return;
      this.#put(batch);
      await new Promise(resolve => setImmediate(resolve));
      if (this.#finished) return;
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

  #recall(row: SessionRow): EndedSession | undefined {
    const { sessions, catalog, editionOf, log } = this.#parts;
    const { id, owner } = row;
    const end = (ending: EndReason, reason: string | null): EndedSession => {
      if (reason !== null) log.warn({ session_id: id, reason }, `session ${id} is lost`);
      return { id, owner, ending, reason, forgetAt: sessions.forgetAt };
    };
    if (row.lost !== null) return end('session_lost', row.lost);
    try {
      const image = new SessionImage();
      const stored = this.#read(row, image);
      if (!stored) return end('session_lost', 'it was stored by another version of the server');
      if (stored.deadline <= sessions.now()) return end('session_expired', null);
      const variant = catalog.variant(stored.envId, stored.config, stored.wrappers);
      if (editionOf(stored.envId) !== row.edition) return end('session_lost', replaced(stored.envId));
      const session = sessions.recall(stored, variant, image);
      if (row.standing === 'open' || (row.standing === 'journaled' && this.#machineEnded)) session.rollBack();
      this.#resumption.covers(id, stored.past.recorded, row.standing === 'atRest');
      return undefined;
    } catch (error) {
      return end('session_lost', (error as Error).message);
    }
  }

  #read({ id, version, settings, document }: SessionRow, image: SessionImage): StoredSession | undefined {
    if (document === null) return undefined;
    if (version === ONE_DOCUMENT) return fromVersion1(JSON.parse(document) as SessionOfVersion1);
    if (version !== DOCUMENT_VERSION || settings === null) return undefined;
    const content = image.read(JSON.parse(document) as StoredHead, this.#rows.parts(id));
    return { ...(JSON.parse(settings) as StoredSettings), ...content };
  }

  #recallReplies(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const byOwner = new Map<string, { replies: StoredReply[]; dropped: Uint32Array[] }>();
    const of = (owner: string) => {
      const known = byOwner.get(owner) ?? { replies: [], dropped: [] };
      byOwner.set(owner, known);
      return known;
    };
    for (const { owner, key, operation, asked, reply } of rows.replies()) {
      if (!this.#share.ownsReply(owner, key)) continue;
      const { replies } = of(owner);
      replies.push({ number: replies.length, key, operation, asked, reply: JSON.parse(reply) as Json });
    }
    for (const { owner, hashes } of rows.droppedKeys()) of(owner).dropped.push(hashesOf(hashes));
    for (const [owner, { replies, dropped }] of byOwner) sessions.recallReplies(owner, replies, dropped);
  }

  /** Why a session cannot be kept. */
  #lostBy({ variant }: Session): string | undefined {
    const { id } = variant.base.spec;
    if (!variant.copyable) {
      return `${id} holds more than its state, which could not be kept over a restart of the server`;
    }
    return this.#parts.catalog.offers(variant.base) ? undefined : replaced(id);
  }

  #freshReplies(): NewReplies[] {
    const all: NewReplies[] = [];
    for (const [owner, memory] of this.#parts.sessions.clientReplies()) {
      const { changes } = memory;
      if (changes.added.length + changes.removed.length + changes.dropped.length === 0) continue;
      all.push({ owner, memory, changes });
    }
    return all;
  }
}

/** Those that changed, and those of a write that was not finished. */
function* changedOf(sessions: Iterable<Session>, unfinished: readonly Session[] = []): Generator<Session> {
  const also = new Set(unfinished);
  for (const session of sessions) if (session.changed || also.has(session)) yield session;
}

function* savedOf(sessions: Iterable<Session>, unwritten: ReadonlySet<Session>): Generator<string> {
  for (const session of sessions) {
    if (session.unsaved === undefined && !unwritten.has(session)) yield session.id;
  }
}

function* unsavedOf(sessions: Iterable<Session>): Generator<string> {
  for (const { id, unsaved } of sessions) if (unsaved !== undefined) yield id;
}

function named(ids: readonly string[]): string {
  const more = ids.length - MAX_NAMED;
  return ids.slice(0, MAX_NAMED).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

function replaced(envId: string): string {
  return `${envId} was replaced while the session was open, and the definition it played is gone`;
}
