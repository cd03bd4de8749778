import type { DatabaseSync, SQLInputValue, StatementSync } from 'node:sqlite';
import { remembered } from '../../shared/remembered.ts';
import { inTransaction, openDatabase } from './database.ts';

/** Milliseconds that a write waits for another process. */
const PATIENCE_MS = 10_000;

/**
 * Possible changes of a session since its row was written. `open`: any, unless the database is newer than the end of
 * its server. `atRest`: none, its server wrote it when it ended. `journaled`: those in the journal; `synced`: the same,
 * even if the machine went down since.
 */
export type RowDurability = 'open' | 'atRest' | 'journaled' | 'synced';

/** Durabilities in the order of the numbers in the column `at_rest`. */
const ROW_DURABILITIES: readonly RowDurability[] = ['open', 'atRest', 'journaled', 'synced'];

/** A stored session without its parts: its documents, or why it cannot be stored. */
export interface SessionRow {
  readonly id: string;
  readonly owner: string;
  /** Version of the documents' form. */
  readonly version: number;
  /** Definition of the environment that it plays. */
  readonly edition: string;
  /** Fields fixed for the life of the session; null keeps the stored ones. */
  readonly settings: string | null;
  /** Fields that change; null keeps the stored ones. */
  readonly document: string | null;
  readonly lost: string | null;
  readonly standing: RowDurability;
}

/** Something of a session that is written once; `data` is text. Parts of a kind are numbered. */
export interface PartRow {
  readonly kind: 'actions' | 'snapshot' | 'reply' | 'dropped';
  readonly number: number;
  readonly data: string;
}

/** A session that ended, remembered until `forgetAt` (milliseconds since the epoch). */
export interface EndedRow {
  readonly id: string;
  readonly owner: string;
  readonly ending: string;
  readonly reason: string | null;
  readonly forgetAt: number;
}

/** A client's reply to a request with a key; `reply` is JSON. */
export interface ReplyRow {
  readonly owner: string;
  readonly key: string;
  readonly operation: string;
  readonly asked: string;
  readonly reply: string;
}

/** Hashes of a client's dropped keys, and when they were dropped (milliseconds since the epoch). */
export interface DroppedKeysRow {
  readonly owner: string;
  readonly hashes: string;
  readonly at: number;
}

/** A moment by every available clock, in milliseconds. */
export interface ClockRow {
  /** Server time. */
  readonly server: number;
  /** Wall clock, since the epoch. */
  readonly wall: number;
  /** Since the machine booted. */
  readonly uptime: number;
  /** Id of the machine's boot; empty where unknown. */
  readonly boot: string;
}

type NamedParameters = Record<string, SQLInputValue>;

/** Rows by operation. */
interface WrittenRows {
  readonly put: SessionRow;
  readonly putPart: PartRow & { readonly sessionId: string };
  readonly removePart: Omit<PartRow, 'data'> & { readonly sessionId: string };
  /** Also removes the rows of the session. */
  readonly end: EndedRow;
  readonly putReply: ReplyRow;
  readonly removeReply: { readonly owner: string; readonly key: string };
  readonly putDroppedKeys: DroppedKeysRow;
  readonly putClock: ClockRow;
  /** Marks the row of a session without rewriting it. */
  readonly mark: { readonly id: string; readonly standing: RowDurability };
  /** Drops ended sessions due to be forgotten by this time, and keys dropped before another time. */
  readonly forget: { readonly now: number; readonly droppedBefore: number };
}

/** One change of the database. */
export type RowWrite = {
  [W in keyof WrittenRows]: readonly [write: W, row: WrittenRows[W]];
}[keyof WrittenRows];

/** Number of the durability `:standing` in the column `at_rest`. */
const AT_REST = `CASE :standing ${ROW_DURABILITIES.map((name, i) => `WHEN '${name}' THEN ${i}`).join(' ')} END`;

/** Statements of each change; their parameters are fields of the row. */
const WRITES: { readonly [W in keyof WrittenRows]: readonly string[] } = {
  put: [
    `INSERT INTO sessions (session_id, owner, version, edition, settings, document, lost, at_rest)
     VALUES (:id, :owner, :version, :edition, :settings, :document, :lost, ${AT_REST})
     ON CONFLICT (session_id) DO UPDATE SET
       version = excluded.version, edition = excluded.edition,
       settings = coalesce(excluded.settings, settings), document = excluded.document,
       lost = excluded.lost, at_rest = excluded.at_rest`,
  ],
  putPart: ['INSERT OR REPLACE INTO session_parts VALUES (:sessionId, :kind, :number, :data)'],
  removePart: [
    'DELETE FROM session_parts WHERE session_id = :sessionId AND kind = :kind AND number = :number',
  ],
  end: [
    'DELETE FROM session_parts WHERE session_id = :id',
    'DELETE FROM sessions WHERE session_id = :id',
    'INSERT OR REPLACE INTO ended_sessions VALUES (:id, :owner, :ending, :reason, :forgetAt)',
  ],
  putReply: [
    `INSERT OR REPLACE INTO replies (owner, request_key, operation, asked, reply)
     VALUES (:owner, :key, :operation, :asked, :reply)`,
  ],
  removeReply: ['DELETE FROM replies WHERE owner = :owner AND request_key = :key'],
  putDroppedKeys: ['INSERT INTO dropped_keys (owner, hashes, dropped_at) VALUES (:owner, :hashes, :at)'],
  putClock: ['INSERT OR REPLACE INTO clock VALUES (1, :server, :wall, :uptime, :boot)'],
  mark: [`UPDATE sessions SET at_rest = ${AT_REST} WHERE session_id = :id`],
  forget: [
    'DELETE FROM ended_sessions WHERE forget_at <= :now',
    'DELETE FROM dropped_keys WHERE dropped_at <= :droppedBefore',
  ],
};

/** Number of records that the document of a row covers. */
const RECORDED =
  "CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.recorded'), 0) ELSE 0 END AS recorded";

/** Sessions, ended sessions and replies in the embedded database. */
export class SessionRows {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** @param folder of the database */
  constructor(folder: string) {
    this.#database = openDatabase(folder, PATIENCE_MS);
  }

  /** From now on written data survives a crash of the machine. */
  sync(): void {
    this.#database.exec('PRAGMA synchronous = FULL');
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  /** Ids of sessions in the order of their rows, with the records that their documents cover. */
  sessions(): { readonly id: string; readonly version: number; readonly recorded: number }[] {
    return this.#statement(
      `SELECT session_id AS id, version, ${RECORDED} FROM sessions ORDER BY rowid`,
    ).all() as never;
  }

  session(id: string): (SessionRow & { readonly recorded: number }) | undefined {
    const row = this.#statement(
      `SELECT session_id AS id, owner, version, edition, settings, document, lost, at_rest AS atRest, ${RECORDED}
       FROM sessions WHERE session_id = ?`,
    ).get(id) as
      | (Omit<SessionRow, 'standing'> & { readonly atRest: number; readonly recorded: number })
      | undefined;
    return row && { ...row, standing: ROW_DURABILITIES[row.atRest] ?? 'open' };
  }

  /** Parts of a session, those of a kind in the order of their numbers. */
  parts(sessionId: string): Iterable<PartRow> {
    return this.#statement(
      'SELECT kind, number, data FROM session_parts WHERE session_id = ? ORDER BY kind, number',
    ).iterate(sessionId) as Iterable<unknown> as Iterable<PartRow>;
  }

  clock(): ClockRow | undefined {
    return this.#statement('SELECT server, wall, uptime, boot FROM clock').get() as ClockRow | undefined;
  }

  droppedKeys(): DroppedKeysRow[] {
    return this.#statement(
      'SELECT owner, hashes, dropped_at AS at FROM dropped_keys ORDER BY id',
    ).all() as unknown as DroppedKeysRow[];
  }

  /** Ended sessions in the order in which they are to be forgotten. */
  ended(): EndedRow[] {
    return this.#statement(
      'SELECT session_id AS id, owner, ending, reason, forget_at AS forgetAt FROM ended_sessions ORDER BY forget_at',
    ).all() as unknown as EndedRow[];
  }

  /** Oldest first. */
  replies(): ReplyRow[] {
    return this.#statement(
      'SELECT owner, request_key AS key, operation, asked, reply FROM replies ORDER BY id',
    ).all() as unknown as ReplyRow[];
  }

  /**
   * Makes all changes or none, in order; they are read inside the transaction.
   * @param permitted checked when no other process can write any more
   * @throws Error of SQLite; Error where it is not permitted
   */
  write(changes: Iterable<RowWrite>, permitted: () => boolean = () => true): void {
    inTransaction(this.#database, () => {
      if (!permitted()) throw new Error('the database takes no more changes from here');
      for (const [write, row] of changes)
        for (const sql of WRITES[write]) this.#statement(sql).run(row as unknown as NamedParameters);
    });
  }

  #statement(sql: string): StatementSync {
    return remembered(this.#statements, sql, () => {
      const statement = this.#database.prepare(sql);
      statement.setAllowUnknownNamedParameters(true);
      return statement;
    });
  }
}

/** Milliseconds for which changes are gathered, and their characters, before they are written. */
const SLICE_MS = 4;
const SLICE_LENGTH = 512 * 1024;

/** A change of the database, or a function to be called when the changes before it are written. */
export type CheckpointChange = RowWrite | (() => void);

/** Changes of one transaction, and what to call when it has succeeded. */
export interface Slice {
  readonly changes: readonly RowWrite[];
  readonly written: readonly (() => void)[];
}

/** Gathers changes, in their order, to transactions that are small and were soon gathered. */
export function* slicesOf(all: Iterable<CheckpointChange>): Generator<Slice> {
  let changes: RowWrite[] = [];
  let written: (() => void)[] = [];
  let length = 0;
  let end = performance.now() + SLICE_MS;
  for (const change of all) {
    if (typeof change === 'function') {
      written.push(change);
      continue;
    }
    changes.push(change);
    for (const value of Object.values(change[1])) if (typeof value === 'string') length += value.length;
    if (length < SLICE_LENGTH && performance.now() < end) continue;
    yield { changes, written };
    [changes, written, length] = [[], [], 0];
    end = performance.now() + SLICE_MS;
  }
  if (changes.length + written.length > 0) yield { changes, written };
}

/** Ended sessions that are remembered at most. */
export const MAX_REMEMBERED = 200_000;

/**
 * Sessions that ended, until the database has their ends. Those that have a row there stay, so that the row is removed
 * and the session never resumed. For the others the database only has to answer their clients after a restart: they are
 * forgotten when all ended sessions are, also where nothing is written while the server runs.
 */
export class UnwrittenEnds implements Iterable<EndedRow> {
  readonly #stored = new Set<EndedRow>();
  /** Ended sessions in the order in which they are to be forgotten. */
  readonly #unstored = new Set<EndedRow>();

  get size(): number {
    return this.#stored.size + this.#unstored.size;
  }

  /**
   * @param isStored the database may have a row of the session
   * @param now in milliseconds of the server's clock, like `forgetAt`
   */
  add(ended: EndedRow, isStored: boolean, now: number): void {
    if (isStored) {
      this.#stored.add(ended);
      return;
    }
    this.#unstored.add(ended);
    for (const oldest of this.#unstored) {
      if (oldest.forgetAt > now && this.#unstored.size <= MAX_REMEMBERED) break;
      this.#unstored.delete(oldest);
    }
  }

  /** The database has them. */
  written(ends: Iterable<EndedRow>): void {
    for (const ended of ends) {
      this.#stored.delete(ended);
      this.#unstored.delete(ended);
    }
  }

  *[Symbol.iterator](): Generator<EndedRow> {
    yield* this.#stored;
    yield* this.#unstored;
  }
}
