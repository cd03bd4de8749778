import type { DatabaseSync } from 'node:sqlite';

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
];

/**
 * Brings a database to the version of this code; `user_version` says where it stands.
 * @throws Error when it was written by a newer version
 */
export function migrate(database: DatabaseSync): void {
  if (versionOf(database) === MIGRATIONS.length) return;
  database.exec('BEGIN IMMEDIATE');
  try {
    // Another process may have been quicker.
    const found = versionOf(database);
    if (found > MIGRATIONS.length) {
      throw new Error(
        `the database has version ${found}, this server knows up to ${MIGRATIONS.length}: run the newer server`,
      );
    }
    for (const statements of MIGRATIONS.slice(found)) database.exec(statements);
    database.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
    database.exec('COMMIT');
  } catch (error) {
    database.exec('ROLLBACK');
    throw error;
  }
}

function versionOf(database: DatabaseSync): number {
  return (database.prepare('PRAGMA user_version').get() as { user_version: number }).user_version;
}
