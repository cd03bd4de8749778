import type { Logger } from 'pino';
import type { Durability } from '../persistence/durability.ts';
import { type ReplayFindings, SessionContinuity } from '../persistence/journal/continuity.ts';
import { Journal } from '../persistence/journal/journal.ts';
import {
  dropFiles,
  type JournalDisk,
  type JournalFile,
  journalFolder,
  listJournal,
} from '../persistence/journal/journal-files.ts';
import type { OpenBody, RecordBody } from '../persistence/journal/records.ts';
import { replayJournal } from '../persistence/journal/replay.ts';
import { bootId } from '../persistence/lock.ts';
import type { PersistenceHealth } from '../persistence/persistence-health.ts';
import {
  type ClockRow,
  type DroppedKeysRow,
  type EndedRow,
  type ReplyRow,
  type RowDurability,
  type SessionChanges,
  type SessionRow,
  SessionRows,
} from '../persistence/session-rows.ts';
import { DatabaseThread } from '../persistence/thread/database-thread.ts';
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
  type StoredEntry,
  type Taken,
  type Tombstone,
} from './session-store.ts';
import { UnwrittenEnds } from './unwritten-ends.ts';

/** Version of the form of the documents of sessions. */
export const DOCUMENT_VERSION = 2;
/** The one writer of a folder. */
const EPOCH = 1;
const BYTES_PER_MB = 1024 * 1024;
/** Share of the journal's bytes that may wait in memory while the disk takes none. */
const WAITING_SHARE = 1 / 8;
/** A write of the journal is a copy to the kernel: on a sound disk it takes microseconds. */
const SLOW_WRITE_MS = 20;
/** Milliseconds for which rows are gathered, and their characters, before they are written. */
const SLICE_MS = 4;
const SLICE_LENGTH = 512 * 1024;
/** Characters of the row of a session that ended. */
const ENDED_LENGTH = 100;

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

/** A session that cannot be kept: all that is stored of it. */
export interface LostSession {
  readonly owner: string;
  readonly lost: string;
}

/** What earlier servers left in the folder, apart from sessions. */
interface StoredHistory {
  readonly clock: ClockRow | undefined;
  readonly ended: readonly EndedRow[];
  readonly replies: readonly ReplyRow[];
  readonly droppedKeys: readonly DroppedKeysRow[];
}

/** Rows that are gathered. */
type Rows = {
  readonly [table in
    | 'put'
    | 'putParts'
    | 'removeParts'
    | 'ended'
    | 'replies'
    | 'removeReplies'
    | 'droppedKeys']: (NonNullable<SessionChanges[table]> extends Iterable<infer R> ? R : never)[];
};

/** Rows of one transaction. */
interface RowBatch {
  readonly rows: Rows;
  length: number;
  readonly end: number;
  /** Called when it is written, or was not. */
  readonly done: ((error?: unknown) => void)[];
}

/** Records of a session that no checkpoint covers. */
interface Tail {
  readonly entries: StoredEntry[];
  readonly like: OpenBody | undefined;
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
  readonly #folder: string;
  /** Durability of rows that are written while the server runs. */
  readonly #standing: RowDurability;
  readonly #ended = new UnwrittenEnds();
  /** Files of earlier runs that no checkpoint covers yet. */
  #inherited: readonly JournalFile[];
  #tails = new Map<string, Tail>();
  /** The machine went down since the database was last written. */
  #machineEnded = false;
  /** Sessions with records that may be missing in the journal. */
  #behind: ReadonlySet<string> = new Set();
  #batch: RowBatch | undefined;
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
    this.#standing = synced ? 'synced' : durability === 'journal' ? 'journaled' : 'open';
    if (this.#standing !== 'open') {
      this.journal = new Journal(
        {
          folder: this.#folder,
          synced,
          maxBytes,
          maxWaitingBytes: maxBytes * WAITING_SHARE,
          slowWriteMs: SLOW_WRITE_MS,
        },
        { health, disk, onPressure },
      );
    }
    this.#inherited = this.journal?.inherited ?? listJournal(this.#folder);
  }

  /** Earlier servers left records that no checkpoint covers. */
  get hasRecords(): boolean {
    return this.#inherited.length > 0;
  }

  history(): StoredHistory {
    const clock = this.#rows.clock();
    this.#machineEnded = clock !== undefined && clock.boot !== bootId();
    const [ended, replies, droppedKeys] = [
      this.#rows.ended(),
      this.#rows.replies(),
      this.#rows.droppedKeys(),
    ];
    return { clock, ended, replies, droppedKeys };
  }

  /**
   * Reads the records of earlier servers, for `take`; others have their turn meanwhile. It keeps their text, which is no
   * longer than `--journal-max-mb`.
   * @param onReply gets the replies of clients' requests that concern no session yet
   */
  async readRecords(onReply: (body: RecordBody<'clientReply'>) => void, signal: AbortSignal): Promise<void> {
    const begun = performance.now();
    const findings: ReplayFindings = { faults: [], incomplete: undefined };
    const continuity = new SessionContinuity();
    for (const { id } of this.#rows.ended()) continuity.covers(id, Number.POSITIVE_INFINITY);
    for (const { id, recorded } of this.#rows.sessions()) continuity.covers(id, recorded);
    /** The last session that was recorded in full: those that follow may begin as it did. */
    let example: { readonly id: string; readonly body: OpenBody } | undefined;
    let records = 0;
    try {
      for await (const { record, position } of replayJournal(
        this.#folder,
        this.#inherited,
        findings,
        signal,
      )) {
        if (record.kind === 'clientReply') {
          onReply(record.body);
          continue;
        }
        const { sessionId: id, letter, n, text } = record;
        let like: OpenBody | undefined;
        if (record.kind === 'open') {
          const { body } = record;
          if (body.episode) example = { id, body };
          else if (body.like !== undefined && body.like === example?.id) like = example.body;
        }
        if (continuity.verdict(record, position) !== 'apply') continue;
        records++;
        const tail = this.#tails.get(id) ?? { entries: [], like };
        this.#tails.set(id, tail);
        tail.entries.push({ epoch: EPOCH, n, kind: letter, body: text });
      }
    } catch (error) {
      findings.incomplete = (error as Error).message;
    }
    if (signal.aborted) return;
    this.#behind = continuity.behind(findings);
    for (const fault of findings.faults) {
      const { kind, file, offset } = fault;
      const where = kind === 'missing' ? file : `${file} from ${offset} on`;
      this.#log[kind === 'torn' ? 'warn' : 'error'](fault, `the journal is ${kind}: ${where}`);
    }
    const counts = { records, behind: this.#behind.size, ms: Math.round(performance.now() - begun) };
    if (findings.incomplete !== undefined)
      this.#log.error(counts, `the last records of the journal may be missing: ${findings.incomplete}`);
    this.#log.info(counts, `read ${records} records of the journal`);
  }

  /** Sessions that earlier servers left, oldest first. */
  ids(): readonly string[] {
    const ids = new Set(this.#rows.sessions().map(({ id }) => id));
    for (const id of this.#tails.keys()) ids.add(id);
    return [...ids];
  }

  /** Gives rows of an earlier form that of today, each with its parts or not at all; those that cannot be read stay. */
  upgrade(version: number, changeOf: (row: SessionRow) => StoredChange): void {
    for (const { id } of this.#rows.sessions().filter(row => row.version === version)) {
      const row = this.#rows.session(id)!;
      if (row.document === null) continue;
      let changes: SessionChanges;
      try {
        const { settings, edition, parts, head } = changeOf(row);
        const put = { ...row, version: DOCUMENT_VERSION, settings, edition, document: JSON.stringify(head) };
        changes = { putParts: [...parts].map(part => ({ ...part, sessionId: id })), put: [put] };
      } catch (error) {
        this.#log.error({ session_id: id, err: error }, `session ${id} cannot be read`);
        continue;
      }
      this.#rows.write(changes);
    }
  }

  /** A session that an earlier server left; its records are given once. An end that they hold is kept. */
  take(id: string, _known: string | undefined, _owner: string | undefined, forgetMs: number): Taken {
    const row = this.#rows.session(id);
    const tail = this.#tails.get(id);
    this.#tails.delete(id);
    const last = tail?.entries.at(-1);
    if (last?.kind === 'e') {
      const { forget_at: forgetAt, ...end } = JSON.parse(last.body) as RecordBody<'end'>;
      return this.#endedAs(id, { ...end, forgetAt } as Tombstone, forgetMs);
    }
    if (!row)
      return tail
        ? { state: 'load', content: { ...this.#contentOf(id, tail), like: tail.like } }
        : { state: 'ended', tombstone: undefined };
    const { owner, version, settings, document, edition } = row;
    const isKnown = version === DOCUMENT_VERSION && settings !== null && document !== null;
    const lost = row.lost ?? (isKnown ? undefined : 'it was stored by another version of the server');
    if (lost !== undefined)
      return this.#endedAs(id, { owner, ending: 'session_lost', reason: lost }, forgetMs);
    const { recorded = 0 } = JSON.parse(document!) as { readonly recorded?: number };
    const head = { epoch: EPOCH, n: recorded, kind: 'C', body: document! } as const;
    const content = this.#contentOf(id, { entries: [head, ...(tail?.entries ?? [])] }, row);
    return { state: 'load', content: { ...content, settings: settings!, edition } };
  }

  #contentOf(id: string, { entries }: Pick<Tail, 'entries'>, row?: SessionRow) {
    const { standing } = row ?? {};
    const isBehind =
      standing === 'open' ||
      (standing === 'journaled' && this.#machineEnded) ||
      (standing !== 'atRest' && this.#behind.has(id));
    const parts = row ? [...this.#rows.parts(id)] : [];
    return { epoch: EPOCH, settings: undefined, edition: undefined, isBehind, parts, entries };
  }

  #endedAs(id: string, tombstone: Tombstone, forgetMs: number): Taken {
    this.end(id, undefined, tombstone, forgetMs);
    return { state: 'ended', tombstone };
  }

  /** The sessions of earlier servers are open here: those that stand as their rows say are marked as in use. */
  begin(opened: readonly string[], clock: ClockRow | undefined): void {
    const marks = [{ ids: opened, standing: this.#standing }];
    this.#rows.write({ ended: this.#ended, marks, clock });
    this.#rows.hurry();
    this.#ended.written(this.#ended);
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

  async checkpoint(id: string, _at: RecordPosition, change: StoredChange | LostSession): Promise<Outcome> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    promise.catch(() => undefined);
    const done = (error?: unknown) => (error === undefined ? resolve() : reject(error));
    for (const _ of this.#gather(id, change, done)) await this.flush();
    await promise;
    return 'kept';
  }

  /** The same for a server that ends, while everything waits; `flushNow` writes the last ones. */
  checkpointNow(id: string, change: StoredChange | LostSession, done: (error?: unknown) => void): void {
    for (const _ of this.#gather(id, change, done)) this.flushNow();
  }

  /** Gathers the rows of a change; yields where those that were gathered are to be written. */
  *#gather(
    id: string,
    change: StoredChange | LostSession,
    done: (error?: unknown) => void,
  ): Generator<undefined> {
    const standing = this.#standing;
    let row: SessionRow;
    if ('lost' in change) {
      const { owner, lost } = change;
      row = {
        id,
        owner,
        version: DOCUMENT_VERSION,
        edition: '',
        settings: null,
        document: null,
        lost,
        standing,
      };
    } else {
      const { owner, edition, settings, head } = change;
      for (const part of textsOf(change.parts))
        if (this.gather('putParts', { ...part, sessionId: id }, part.data.length)) yield;
      const document = textOf(head);
      row = { id, owner, version: DOCUMENT_VERSION, edition, settings, document, lost: null, standing };
    }
    const isFull = this.gather('put', row, (row.document?.length ?? 0) + (row.settings?.length ?? 0));
    if ('remove' in change)
      for (const part of change.remove) this.gather('removeParts', { ...part, sessionId: id }, 0);
    this.#batch!.done.push(done);
    if (isFull) yield;
  }

  /** Gathers a row. @returns true when what was gathered is to be written */
  gather<T extends keyof Rows>(table: T, row: Rows[T][number], length: number): boolean {
    if (!this.#batch) {
      const batch = newBatch();
      this.#batch = batch;
      if (!this.#sealed)
        setImmediate(() => {
          if (this.#batch === batch && !this.#sealed) this.flush().catch(() => undefined);
        });
    }
    const batch = this.#batch;
    (batch.rows[table] as Rows[T][number][]).push(row);
    batch.length += length;
    return batch.length >= SLICE_LENGTH || (!this.#sealed && performance.now() >= batch.end);
  }

  /** Writes what was gathered in the thread, all or none. */
  async flush(): Promise<void> {
    const batch = this.#batch;
    if (!batch) return;
    this.#batch = undefined;
    try {
      await this.#thread.write('writeSessions', batch.rows);
    } catch (error) {
      for (const done of batch.done) done(error);
      throw error;
    }
    for (const done of batch.done) done();
  }

  /** The same at once. */
  flushNow(): void {
    const batch = this.#batch;
    if (!batch) return;
    this.#batch = undefined;
    this.#rows.write(batch.rows);
    for (const done of batch.done) done();
  }

  /** Begins a checkpoint of every session. @returns argument for `conclude` */
  mark(): number | undefined {
    return this.journal?.rotate();
  }

  /** Every session that changed before the mark has a checkpoint: the records before it go. */
  async conclude(mark: number | undefined, rest: SessionChanges): Promise<void> {
    const ended = [...this.#ended];
    for (const row of ended) if (this.gather('ended', row, ENDED_LENGTH)) await this.flush();
    await this.flush();
    if (this.#sealed) return;
    this.#ended.written(ended);
    await this.#thread.write('writeSessions', rest);
    if (this.#sealed) return;
    if (mark !== undefined) this.journal?.release(mark);
    this.#dropInherited();
  }

  /** From now on the thread writes nothing of sessions; `checkpointNow` and `concludeNow` do. */
  seal(): void {
    this.#sealed = true;
    this.#batch = undefined;
    this.#thread.seal();
    this.#rows.bePatient();
  }

  /** Writes what is left, for a server that ends. */
  concludeNow(rest: SessionChanges): void {
    this.flushNow();
    this.#rows.write({ ...rest, ended: this.#ended });
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
        this.journal?.release(Number.POSITIVE_INFINITY);
        this.#dropInherited();
      } catch (error) {
        this.#log.warn({ err: error }, 'the journal could not be deleted');
      }
    }
    this.#rows.close();
    void this.#thread.close();
    return waiting;
  }

  #dropInherited(): void {
    if (this.#inherited.length === 0) return;
    if (this.journal) this.journal.releaseInherited();
    else dropFiles(this.#folder, this.#inherited);
    this.#inherited = [];
  }
}

function newBatch(): RowBatch {
  const rows: Rows = {
    put: [],
    putParts: [],
    removeParts: [],
    ended: [],
    replies: [],
    removeReplies: [],
    droppedKeys: [],
  };
  return { rows, length: 0, end: performance.now() + SLICE_MS, done: [] };
}

/** @throws NotStorable */
function* textsOf(parts: StoredChange['parts']): StoredChange['parts'] & Generator {
  try {
    yield* parts;
  } catch (error) {
    throw new NotStorable((error as Error).message, { cause: error });
  }
}

/** @throws NotStorable */
function textOf(head: StoredChange['head']): string {
  try {
    return JSON.stringify(head);
  } catch (error) {
    throw new NotStorable((error as Error).message, { cause: error });
  }
}
