import type { DatabaseSync } from 'node:sqlite';
import { inTransaction } from './transaction.ts';

/** Statements that lead from each version of the database to the next; never change one that was released. */
const MIGRATIONS: readonly string[] = [
  `CREATE TABLE environments (
     env_id TEXT PRIMARY KEY,
     kind TEXT NOT NULL,
     definition TEXT NOT NULL,
     facts TEXT NOT NULL,
     owner TEXT NOT NULL,
     revision INTEGER NOT NULL,
     registered_at INTEGER NOT NULL,
     replaced_at INTEGER
   ) STRICT;
   CREATE TABLE audit (
     id INTEGER PRIMARY KEY,
     at INTEGER NOT NULL,
     principal TEXT NOT NULL,
     action TEXT NOT NULL,
     env_id TEXT NOT NULL,
     kind TEXT NOT NULL,
     sha256 TEXT NOT NULL
   ) STRICT;`,
  `CREATE TABLE sessions (
     session_id TEXT PRIMARY KEY,
     owner TEXT NOT NULL,
     version INTEGER NOT NULL,
     edition TEXT NOT NULL,
     document TEXT,
     lost TEXT,
     at_rest INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE ended_sessions (
     session_id TEXT PRIMARY KEY,
     owner TEXT NOT NULL,
     ending TEXT NOT NULL,
     reason TEXT,
     forget_at INTEGER NOT NULL
   ) STRICT;
   CREATE INDEX ended_sessions_by_time ON ended_sessions (forget_at);
   CREATE TABLE replies (
     id INTEGER PRIMARY KEY,
     owner TEXT NOT NULL,
     request_key TEXT NOT NULL,
     operation TEXT NOT NULL,
     asked TEXT NOT NULL,
     reply TEXT NOT NULL,
     UNIQUE (owner, request_key)
   ) STRICT;
   CREATE INDEX replies_by_owner ON replies (owner, id);
   ALTER TABLE audit ADD COLUMN outcome TEXT NOT NULL DEFAULT 'accepted';`,
  // A session's row has what changes often; its parts are written once. Rows of version 1 have all of it in the document.
  `ALTER TABLE sessions ADD COLUMN settings TEXT;
   CREATE TABLE session_parts (
     session_id TEXT NOT NULL,
     kind TEXT NOT NULL,
     number INTEGER NOT NULL,
     data TEXT NOT NULL,
     PRIMARY KEY (session_id, kind, number)
   ) STRICT;
   CREATE TABLE dropped_keys (
     id INTEGER PRIMARY KEY,
     owner TEXT NOT NULL,
     hashes TEXT NOT NULL,
     dropped_at INTEGER NOT NULL
   ) STRICT;
   CREATE TABLE clock (
     id INTEGER PRIMARY KEY CHECK (id = 1),
     server REAL NOT NULL,
     wall REAL NOT NULL,
     uptime REAL NOT NULL,
     boot TEXT NOT NULL
   ) STRICT;`,
];

/**
 * Brings a database to the version of this code; `user_version` says where it stands.
 * @throws Error when it was written by a newer version
 */
export function migrate(database: DatabaseSync): void {
  if (versionOf(database) === MIGRATIONS.length) return;
  inTransaction(database, () => {
    // Another process may have been quicker.
    const found = versionOf(database);
    if (found > MIGRATIONS.length) {
      throw new Error(
        `the database has version ${found}, this server knows up to ${MIGRATIONS.length}: run the newer server`,
      );
    }
    for (const statements of MIGRATIONS.slice(found)) database.exec(statements);
    database.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

function versionOf(database: DatabaseSync): number {
  return (database.prepare('PRAGMA user_version').get() as { user_version: number }).user_version;
}
