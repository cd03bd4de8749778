import type { Logger } from 'pino';
import type { Durability } from '../persistence/durability.ts';
import { Journal } from '../persistence/journal/journal.ts';
import { type JournalDisk, JournalFiles, journalFolder } from '../persistence/journal/journal-files.ts';
import type { OpenBody, RecordBody } from '../persistence/journal/records.ts';
import { bootId } from '../persistence/lock.ts';
import type { PersistenceHealth } from '../persistence/persistence-health.ts';
import {
  type CheckpointChange,
  type ClockRow,
  type DroppedKeysRow,
  type EndedRow,
  type ReplyRow,
  type RowDurability,
  type RowWrite,
  type SessionRow,
  SessionRows,
  slicesOf,
  UnwrittenEnds,
} from '../persistence/session-rows.ts';
import { DatabaseThread } from '../persistence/thread/database-thread.ts';
import { LeftRecords } from './left-records.ts';
import {
  type EndPosition,
  type EntryKind,
  type NewSession,
  NotStorable,
  type OpenLimits,
  type Outcome,
  type RecordPosition,
  type SessionStore,
  type StoredChange,
  type StoredContent,
  type Taken,
  type Tombstone,
} from './session-store.ts';

/** Version of the form of the documents of sessions. */
const DOCUMENT_VERSION = 2;
/** The one writer of a folder. */
const EPOCH = 1;
const BYTES_PER_MB = 1024 * 1024;
/** Share of the journal's bytes that may wait in memory while the disk takes none. */
const WAITING_SHARE = 1 / 8;
/** A write of the journal is a copy to the kernel: on a sound disk it takes microseconds. */
const SLOW_WRITE_MS = 20;

export interface SqliteStoreSettings {
  /** Folder of the database; this process holds its lock. */
  readonly data: string;
  readonly durability: Durability;
  /** Greatest size of the journal on the disk, in megabytes. */
  readonly journalMaxMb: number;
}

export interface SqliteStoreParts {
  readonly health: PersistenceHealth;
  readonly log: Logger;
  /** Milliseconds of the server's clock. */
  readonly now: () => number;
  /** The journal needs room: a checkpoint of every session makes it. */
  readonly onPressure: () => void;
  /** Disk of the journal; tests replace it. */
  readonly disk?: JournalDisk;
}

/** Data that earlier servers left in the folder, apart from sessions. */
interface StoredHistory {
  readonly clock: ClockRow | undefined;
  readonly ended: readonly EndedRow[];
  readonly replies: readonly ReplyRow[];
  readonly droppedKeys: readonly DroppedKeysRow[];
}

/**
 * Sessions of one server in a folder: records go to the journal, one row for each turn of the event loop, and checkpoints to
 * the tables of the database, in a thread. The server has every session in memory, and takes them once, at its start. A
 * checkpoint of every session that changed makes the journal before it unneeded.
 */
export class SqliteSessionStore implements SessionStore {
  readonly isShared = false;
  /** Undefined with `--durability` `checkpoint` or `none`. */
  readonly journal: Journal | undefined;
  readonly #log: Logger;
  readonly #now: () => number;
  readonly #rows: SessionRows;
  readonly #thread: DatabaseThread;
  readonly #files: JournalFiles;
  readonly #folder: string;
  /** Durability of rows that are written while the server runs. */
  readonly #standing: RowDurability;
  readonly #ended = new UnwrittenEnds();
  readonly #left = new LeftRecords();
  /** The machine went down since the database was last written. */
  #machineEnded = false;
  #sealed = false;

  constructor(
    { data, durability, journalMaxMb }: SqliteStoreSettings,
    { health, log, now, onPressure, disk }: SqliteStoreParts,
  ) {
    const synced = durability === 'fsync';
    const maxBytes = journalMaxMb * BYTES_PER_MB;
    this.#log = log;
    this.#now = now;
    this.#rows = new SessionRows(data);
    if (synced) this.#rows.sync();
    this.#thread = new DatabaseThread({ folder: data, synced });
    this.#folder = journalFolder(data);
    this.#files = new JournalFiles(this.#folder, synced, disk);
    this.#standing = synced ? 'synced' : durability === 'journal' ? 'journaled' : 'open';
    if (this.#standing !== 'open') {
      this.journal = new Journal(
        {
          synced,
          maxBytes,
          maxWaitingBytes: maxBytes * WAITING_SHARE,
          slowWriteMs: SLOW_WRITE_MS,
        },
        { files: this.#files, health, onPressure },
      );
    }
  }

  /** Earlier servers left records that no checkpoint covers. */
  get hasRecords(): boolean {
    return this.#files.inherited.length > 0;
  }

  history(): StoredHistory {
    const clock = this.#rows.clock();
    this.#machineEnded = clock !== undefined && clock.boot !== bootId();
    const rows = this.#rows;
    return { clock, ended: rows.ended(), replies: rows.replies(), droppedKeys: rows.droppedKeys() };
  }

  /**
   * Reads the records of earlier servers, for `take`; others have their turn meanwhile.
   * @param onReply gets the replies of clients' requests that concern no session yet
   */
  async readRecords(onReply: (body: RecordBody<'clientReply'>) => void, signal: AbortSignal): Promise<void> {
    const covered = [
      ...this.#rows.ended().map(({ id }) => [id, Number.POSITIVE_INFINITY] as const),
      ...this.#rows.sessions().map(({ id, recorded }) => [id, recorded] as const),
    ];
    const { inherited } = this.#files;
    const found = await this.#left.read(this.#folder, inherited, covered, onReply, {
      log: this.#log,
      signal,
    });
    this.#files.keepDamaged(found.faults);
  }

  /** Sessions that earlier servers left, oldest first. */
  ids(): readonly string[] {
    const ids = new Set(this.#rows.sessions().map(({ id }) => id));
    for (const id of this.#left.ids()) ids.add(id);
    return [...ids];
  }

  /** Gives rows of an earlier form that of today, each with its parts or not at all; those that cannot be read stay. */
  upgrade(version: number, changeOf: (row: SessionRow) => StoredChange): void {
    for (const { id } of this.#rows.sessions().filter(row => row.version === version)) {
      const row = this.#rows.session(id)!;
      if (row.document === null) continue;
      let changes: RowWrite[];
      try {
        changes = [...this.changesOf(id, changeOf(row))];
      } catch (error) {
        this.#log.error({ session_id: id, err: error }, `session ${id} cannot be read`);
        continue;
      }
      this.#rows.write([...changes, ['mark', { id, standing: row.standing }]]);
    }
  }

  /** A session that an earlier server left; its records are given once. An end that they hold is kept. */
  take(id: string, _known: string | undefined, _owner: string | undefined, forgetMs: number): Taken {
    const row = this.#rows.session(id);
    const { entries, like } = this.#left.take(id);
    const last = entries.at(-1);
    if (last?.kind === 'e') {
      const { forget_at: forgetAt, ...end } = JSON.parse(last.body) as RecordBody<'end'>;
      return this.#endedAs(id, { ...end, forgetAt } as Tombstone, forgetMs);
    }
    if (!row && entries.length === 0) return { state: 'ended', tombstone: undefined };
    const { owner, edition } = row ?? (JSON.parse(entries[0].body) as OpenBody);
    const lost = row && lossOf(row);
    if (lost) return this.#endedAs(id, { owner, ending: 'session_lost', reason: lost }, forgetMs);
    const { standing, settings, document } = row ?? {};
    const isBehind =
      standing === 'open' ||
      (standing === 'journaled' && this.#machineEnded) ||
      (standing !== 'atRest' && this.#left.isBehind(id));
    const head = row ? [{ epoch: EPOCH, n: row.recorded, kind: 'C', body: document! } as const] : [];
    const content: StoredContent = {
      epoch: EPOCH,
      owner,
      edition,
      settings: settings ?? undefined,
      isBehind,
      parts: row ? [...this.#rows.parts(id)] : [],
      entries: [...head, ...entries],
      like,
    };
    return { state: 'load', content };
  }

  #endedAs(id: string, tombstone: Tombstone, forgetMs: number): Taken {
    this.end(id, undefined, tombstone, forgetMs);
    return { state: 'ended', tombstone };
  }

  /** The sessions of earlier servers are open here: those with rows that say all of them are marked as in use. */
  begin(opened: readonly string[], rest: readonly RowWrite[]): void {
    const marks = opened.map(id => ['mark', { id, standing: this.#standing }] as const);
    this.concludeNow([...marks, ...rest]);
    this.#ended.written(this.#ended);
    this.#left.clear();
  }

  open(
    _owner: string,
    _environment: string,
    _limits: OpenLimits,
    sessions: readonly NewSession[],
  ): undefined {
    for (const { id, record } of sessions) this.append(id, EPOCH, 1, 'o', record);
    return undefined;
  }

  append(id: string, _epoch: number, n: number, kind: EntryKind, body: string): Outcome {
    this.journal?.append(kind, id, n, body);
    return 'kept';
  }

  /**
   * Ends a session; its rows go with the next checkpoint of all.
   * @param at undefined records nothing
   */
  end(
    id: string,
    at: EndPosition | undefined,
    { owner, ending, reason = null, ...tombstone }: Tombstone,
    forgetMs: number,
  ): Outcome {
    const { forgetAt = this.#now() + forgetMs } = tombstone;
    if (at) {
      const body: RecordBody<'end'> = { owner, ending, reason, forget_at: forgetAt };
      this.append(id, EPOCH, at.n, 'e', JSON.stringify(body));
    }
    this.#ended.add({ id, owner, ending, reason, forgetAt }, at?.hasCheckpoint ?? true, this.#now());
    return 'kept';
  }

  async checkpoint(id: string, _at: RecordPosition, change: StoredChange): Promise<Outcome> {
    for await (const _ of this.write(this.changesOf(id, change)));
    return 'kept';
  }

  /**
   * The rows of a checkpoint.
   * @throws NotStorable
   */
  *changesOf(
    id: string,
    { owner, edition, settings, head, parts, remove }: StoredChange,
  ): Generator<RowWrite> {
    const texts = storable(() => parts[Symbol.iterator]());
    for (let part = storable(() => texts.next()); !part.done; part = storable(() => texts.next()))
      yield ['putPart', { ...part.value, sessionId: id }];
    const document = storable(() => JSON.stringify(head));
    const row = { id, owner, version: DOCUMENT_VERSION, standing: this.#standing };
    yield ['put', { ...row, edition, settings, document, lost: null }];
    for (const part of remove) yield ['removePart', { ...part, sessionId: id }];
  }

  /** The row of a session that cannot be kept. */
  lost(id: string, owner: string, lost: string): RowWrite {
    const row = { id, owner, version: DOCUMENT_VERSION, standing: this.#standing };
    return ['put', { ...row, edition: '', settings: null, document: null, lost }];
  }

  /** Writes changes in the thread, a few at a time, each time all or none; yields after each time. */
  async *write(all: Iterable<CheckpointChange>): AsyncGenerator<undefined> {
    for (const { changes, written } of slicesOf(all)) {
      if (this.#sealed) throw new Error('the server writes its sessions for the last time');
      await this.#thread.write('writeSessions', changes);
      for (const each of written) each();
      yield;
    }
  }

  /** The same while everything waits. */
  writeNow(all: Iterable<CheckpointChange>): void {
    for (const { changes, written } of slicesOf(all)) {
      this.#rows.write(changes);
      for (const each of written) each();
    }
  }

  /** Begins a checkpoint of every session. @returns argument for `conclude` */
  mark(): number {
    return this.#files.rotate();
  }

  /** Every session that changed before the mark has a checkpoint: the records before it go. */
  async conclude(mark: number, rest: readonly RowWrite[]): Promise<void> {
    const ended = [...this.#ended];
    for await (const _ of this.write([...ended.map(row => ['end', row] as const), ...rest]));
    if (this.#sealed) return;
    this.#ended.written(ended);
    this.#files.release(mark);
  }

  /** From now on the thread writes nothing of sessions; `writeNow` and `concludeNow` do. */
  seal(): void {
    this.#sealed = true;
    this.#thread.seal();
  }

  concludeNow(rest: readonly RowWrite[]): void {
    this.#rows.write([...[...this.#ended].map(row => ['end', row] as const), ...rest]);
  }

  /**
   * Closes the files.
   * @param isCovered the database has everything that the journal has: it goes
   * @returns bytes of records that could not be written
   */
  close(isCovered: boolean): number {
    const waiting = this.journal?.close() ?? 0;
    if (isCovered) {
      try {
        this.#files.release(Number.POSITIVE_INFINITY);
      } catch (error) {
        this.#log.warn({ err: error }, 'the journal could not be deleted');
      }
    }
    this.#rows.close();
    void this.#thread.close();
    return waiting;
  }
}

/** Why a session cannot be opened from its row. */
function lossOf({ lost, version, settings, document }: SessionRow): string | undefined {
  const isKnown = version === DOCUMENT_VERSION && settings !== null && document !== null;
  return lost ?? (isKnown ? undefined : 'it was stored by another version of the server');
}

/** @throws NotStorable where something cannot be made text */
function storable<T>(text: () => T): T {
  try {
    return text();
  } catch (error) {
    throw new NotStorable((error as Error).message, { cause: error });
  }
}
