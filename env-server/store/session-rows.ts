import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { openDatabase } from './database.ts';
import { inTransaction } from './transaction.ts';

/** How long a write waits for another process; everything else waits with it. */
const PATIENCE_MS = 20;
/** The same for the last write of a server that ends. */
const LAST_PATIENCE_MS = 10_000;

/** A session as it is kept: its document, or why it cannot be kept. */
export interface SessionRow {
  readonly id: string;
  readonly owner: string;
  /** Of the document's form. */
  readonly version: number;
  /** Which definition of its environment it plays. */
  readonly edition: string;
  readonly document: string | null;
  readonly lost: string | null;
  /** Nothing can have happened to it since it was written: its server wrote it when it ended. */
  readonly atRest: boolean;
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

/** What is written at once; iterables are read inside the transaction and may end when they like. */
export interface SessionChanges {
  readonly put?: Iterable<SessionRow>;
  readonly remove?: Iterable<string>;
  /** Also removes their rows. */
  readonly ended?: Iterable<EndedRow>;
  readonly replies?: Iterable<ReplyRow>;
  /** Marks rows as written at rest, or as those of sessions that are open again. */
  readonly atRest?: { readonly ids: Iterable<string>; readonly value: boolean };
  /** Drops what was to be forgotten by this time, and all but so many replies of each owner. */
  readonly forget?: { readonly now: number; readonly repliesKept: number };
}

/** Sessions, ended sessions and replies in the embedded database. */
export class SessionRows {
  readonly #database: DatabaseSync;
  readonly #statements = new Map<string, StatementSync>();

  /** @param folder of the database */
  constructor(folder: string) {
    this.#database = openDatabase(folder, LAST_PATIENCE_MS);
  }

  /** From now on writes fail where another process would make them wait; until `bePatient`. */
  hurry(): void {
    this.#database.exec(`PRAGMA busy_timeout = ${PATIENCE_MS}`);
  }

  bePatient(): void {
    this.#database.exec(`PRAGMA busy_timeout = ${LAST_PATIENCE_MS}`);
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  *sessions(): Generator<SessionRow> {
    const rows = this.#statement(
      `SELECT session_id AS id, owner, version, edition, document, lost, at_rest AS atRest
       FROM sessions ORDER BY rowid`,
    ).iterate() as Iterable<Omit<SessionRow, 'atRest'> & { readonly atRest: number }>;
    for (const row of rows) yield { ...row, atRest: row.atRest === 1 };
  }

  /** In the order in which they are to be forgotten. */
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

  /** All of it or nothing. */
  write({ put = [], remove = [], ended = [], replies = [], atRest, forget }: SessionChanges): void {
    inTransaction(this.#database, () => {
      for (const row of put) this.#put(row);
      for (const id of remove) this.#remove(id);
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
      for (const { owner, key, operation, asked, reply } of replies) {
        this.#statement(
          'INSERT OR REPLACE INTO replies (owner, request_key, operation, asked, reply) VALUES (?, ?, ?, ?, ?)',
        ).run(owner, key, operation, asked, reply);
      }
      if (atRest) {
        const statement = this.#statement('UPDATE sessions SET at_rest = ? WHERE session_id = ?');
        for (const id of atRest.ids) statement.run(Number(atRest.value), id);
      }
      if (forget) this.#forget(forget.now, forget.repliesKept);
    });
  }

  #put({ id, owner, version, edition, document, lost, atRest }: SessionRow): void {
    this.#statement(
      `INSERT INTO sessions (session_id, owner, version, edition, document, lost, at_rest)
       VALUES (?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (session_id) DO UPDATE SET
         version = excluded.version, edition = excluded.edition, document = excluded.document,
         lost = excluded.lost, at_rest = excluded.at_rest`,
    ).run(id, owner, version, edition, document, lost, Number(atRest));
  }

  #remove(id: string): void {
    this.#statement('DELETE FROM sessions WHERE session_id = ?').run(id);
  }

  #forget(now: number, repliesKept: number): void {
    this.#statement('DELETE FROM ended_sessions WHERE forget_at <= ?').run(now);
    for (const { owner } of this.#statement('SELECT DISTINCT owner FROM replies').all()) {
      this.#statement(
        `DELETE FROM replies WHERE owner = ? AND id <=
           (SELECT id FROM replies WHERE owner = ? ORDER BY id DESC LIMIT 1 OFFSET ?)`,
      ).run(owner, owner, repliesKept);
    }
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
