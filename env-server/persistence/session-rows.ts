import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { openDatabase } from './database.ts';
import { inTransaction } from './transaction.ts';

/** Milliseconds that a write waits for another process. */
const PATIENCE_MS = 10_000;

/**
 * What may have happened to a session since its row was written. `open`: anything, unless the database is newer than the
 * end of its server. `atRest`: nothing, its server wrote it when it ended. `journaled`: what the journal has; `synced`:
 * the same, even where the machine went down since.
 */
export type RowDurability = 'open' | 'atRest' | 'journaled' | 'synced';

/** Durabilities in the order of the numbers in the column `at_rest`. */
const ROW_DURABILITIES: readonly RowDurability[] = ['open', 'atRest', 'journaled', 'synced'];

/** A session as it is kept, apart from its parts: its documents, or why it cannot be kept. */
export interface SessionRow {
  readonly id: string;
  readonly owner: string;
  /** Version of the documents' form. */
  readonly version: number;
  /** Which definition of its environment it plays. */
  readonly edition: string;
  /** Fields fixed for the life of the session; null leaves what is there. */
  readonly settings: string | null;
  /** Fields that change; null leaves what is there. */
  readonly document: string | null;
  readonly lost: string | null;
  readonly standing: RowDurability;
}

/** Something of a session that is written once; `data` is text. Those of a kind are numbered. */
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

/** The times of a moment, in milliseconds. */
export interface ClockRow {
  readonly server: number;
  readonly wall: number;
  readonly uptime: number;
  readonly boot: string;
}

/** Rows that are written at once; iterables are read inside the transaction and may end when they like. */
export interface SessionChanges {
  readonly put?: Iterable<SessionRow>;
  readonly putParts?: Iterable<PartRow & { readonly sessionId: string }>;
  readonly removeParts?: Iterable<Omit<PartRow, 'data'> & { readonly sessionId: string }>;
  /** Also removes their rows. */
  readonly ended?: Iterable<EndedRow>;
  readonly replies?: Iterable<ReplyRow>;
  readonly removeReplies?: Iterable<{ readonly owner: string; readonly key: string }>;
  readonly droppedKeys?: Iterable<DroppedKeysRow>;
  readonly clock?: ClockRow;
  /** Marks rows without writing them. */
  readonly marks?: readonly { readonly ids: Iterable<string>; readonly standing: RowDurability }[];
  /** Drops ended sessions that were to be forgotten by this time, and keys that were dropped before another. */
  readonly forget?: { readonly now: number; readonly droppedBefore: number };
}

/** Records that the document of a row covers. */
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

  /** From now on what was written survives the end of the machine. */
  sync(): void {
    this.#database.exec('PRAGMA synchronous = FULL');
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  /** Ids of sessions in the order in which their rows were made, with the records that their documents cover. */
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
   * All of it or nothing.
   * @param permitted asked when no other process can write any more
   * @throws Problem `storage_full`, `storage_failed`; Error where it is not permitted
   */
  write(changes: SessionChanges, permitted: () => boolean = () => true): void {
    inTransaction(this.#database, () => {
      if (!permitted()) throw new Error('the database takes no more changes from here');
      this.#writeSessions(changes);
      this.#writeReplies(changes);
      if (changes.clock) {
        const { server, wall, uptime, boot } = changes.clock;
        this.#statement('INSERT OR REPLACE INTO clock VALUES (1, ?, ?, ?, ?)').run(
          server,
          wall,
          uptime,
          boot,
        );
      }
      if (changes.forget) this.#forget(changes.forget);
    });
  }

  #writeSessions({
    putParts = [],
    put = [],
    removeParts = [],
    ended = [],
    marks = [],
  }: SessionChanges): void {
    for (const { sessionId, kind, number, data } of putParts) {
      this.#statement('INSERT OR REPLACE INTO session_parts VALUES (?, ?, ?, ?)').run(
        sessionId,
        kind,
        number,
        data,
      );
    }
    for (const row of put) this.#put(row);
    for (const { sessionId, kind, number } of removeParts) {
      this.#statement('DELETE FROM session_parts WHERE session_id = ? AND kind = ? AND number = ?').run(
        sessionId,
        kind,
        number,
      );
    }
    for (const row of ended) {
      this.#remove(row.id);
      this.#statement('INSERT OR REPLACE INTO ended_sessions VALUES (?, ?, ?, ?, ?)').run(
        row.id,
        row.owner,
        row.ending,
        row.reason,
        row.forgetAt,
      );
    }
    const statement = this.#statement('UPDATE sessions SET at_rest = ? WHERE session_id = ?');
    for (const { ids, standing } of marks) {
      for (const id of ids) statement.run(ROW_DURABILITIES.indexOf(standing), id);
    }
  }

  #writeReplies({ replies = [], removeReplies = [], droppedKeys = [] }: SessionChanges): void {
    for (const { owner, key, operation, asked, reply } of replies) {
      this.#statement(
        'INSERT OR REPLACE INTO replies (owner, request_key, operation, asked, reply) VALUES (?, ?, ?, ?, ?)',
      ).run(owner, key, operation, asked, reply);
    }
    for (const { owner, key } of removeReplies) {
      this.#statement('DELETE FROM replies WHERE owner = ? AND request_key = ?').run(owner, key);
    }
    for (const { owner, hashes, at } of droppedKeys) {
      this.#statement('INSERT INTO dropped_keys (owner, hashes, dropped_at) VALUES (?, ?, ?)').run(
        owner,
        hashes,
        at,
      );
    }
  }

  #put({ id, owner, version, edition, settings, document, lost, standing }: SessionRow): void {
    this.#statement(
      `INSERT INTO sessions (session_id, owner, version, edition, settings, document, lost, at_rest)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (session_id) DO UPDATE SET
         version = excluded.version, edition = excluded.edition,
         settings = coalesce(excluded.settings, settings), document = excluded.document,
         lost = excluded.lost, at_rest = excluded.at_rest`,
    ).run(id, owner, version, edition, settings, document, lost, ROW_DURABILITIES.indexOf(standing));
  }

  #remove(id: string): void {
    this.#statement('DELETE FROM session_parts WHERE session_id = ?').run(id);
    this.#statement('DELETE FROM sessions WHERE session_id = ?').run(id);
  }

  #forget({ now, droppedBefore }: { readonly now: number; readonly droppedBefore: number }): void {
    this.#statement('DELETE FROM ended_sessions WHERE forget_at <= ?').run(now);
    this.#statement('DELETE FROM dropped_keys WHERE dropped_at <= ?').run(droppedBefore);
  }

  #statement(sql: string): StatementSync {
    let statement = this.#statements.get(sql);
    if (!statement) {
      statement = this.#database.prepare(sql);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}
