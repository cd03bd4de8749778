import { existsSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { makePrivateFile, makePrivateFolder, tighten } from './lock.ts';
import { DamagedDatabase, isDamage } from './persistence-health.ts';

const SQLITE_BUSY = 5;
export const DATABASE_FILE = 'ragen.db';
/** Folder of the journal in the database's folder, made after the database. */
export const JOURNAL_FOLDER = 'journal';

/** Files that SQLite keeps next to a database, created with the mode of the database. */
export const COMPANIONS = ['-wal', '-shm'] as const;

/**
 * Opens the embedded database, making and upgrading it as needed. Its files are private to the server's user.
 * @param folder made where it is missing; undefined keeps everything in memory
 * @param patienceMs how long a write waits for another process's write
 * @throws ForeignDatabase where it is another program's, or of a newer version; DamagedDatabase; Error of the system
 */
export function openDatabase(folder: string | undefined, patienceMs: number): DatabaseSync {
  if (folder === undefined) return opened(':memory:', patienceMs);
  makePrivateFolder(folder);
  return openFile(join(folder, DATABASE_FILE), patienceMs);
}

/** Opens a database file; see {@link openDatabase}. */
export function openFile(path: string, patienceMs: number): DatabaseSync {
  const emptied = emptiedFault(path);
  if (emptied) throw new DamagedDatabase(path, emptied);
  makePrivateFile(path);
  for (const companion of COMPANIONS) tighten(path + companion);
  return opened(path, patienceMs);
}

/** The fault of a database that has lost all its bytes: SQLite would take it for a new one, and delete its log. */
export function emptiedFault(path: string): Error | undefined {
  const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size;
  if (sizeOf(path) !== 0) return undefined;
  const isNew = !sizeOf(`${path}-wal`) && !existsSync(join(dirname(path), JOURNAL_FOLDER));
  return isNew ? undefined : new Error('it has 0 bytes, but a log or a journal');
}

/** @throws Error that names the file, for one that cannot be opened at all */
function openedFile(path: string, timeout: number): DatabaseSync {
  try {
    return new DatabaseSync(path, { timeout });
  } catch (cause) {
    const why = (cause as Error).message;
    throw new Error(`${path}: ${why}; it must be a file that this user may read and write`, { cause });
  }
}

function opened(path: string, timeout: number): DatabaseSync {
  const database = openedFile(path, timeout);
  try {
    requireOwn(database, path);
    // A committed transaction survives the end of the process at any instant; only a crash of the machine may undo the
    // last ones.
    database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
    migrate(database);
    return database;
  } catch (error) {
    database.close();
    if (isDamage(error)) throw new DamagedDatabase(path, error as Error);
    if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error;
    throw new ForeignDatabase(
      `the database ${path} is locked by another program; end that, or name another folder with --data`,
      { cause: error },
    );
  }
}

/** Tables of another program that a message names. */
const MAX_NAMED = 5;

/** Statements that upgrade each version of the database to the next; never change a released one. */
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
  // A session's row has the changing data; its parts are written once. Rows of version 1 have everything in the
  // document.
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

/** The file is not a database that this server can open; the message has the remedy. */
class ForeignDatabase extends Error {
  override readonly name = 'ForeignDatabase';
}

/**
 * Checks that a database is one of this server, and not of a newer one; reads only.
 * @param file for messages
 * @throws ForeignDatabase
 */
function requireOwn(database: DatabaseSync, file: string): void {
  const version = versionOf(database);
  const tables = tablesOf(database);
  const expected = MIGRATIONS.slice(0, version).flatMap(statements =>
    [...statements.matchAll(/CREATE TABLE (\w+)/g)].map(([, table]) => table),
  );
  const missing = expected.filter(table => !tables.includes(table));
  const isForeign = version === 0 ? tables.length > 0 : missing.length > 0;
  if (isForeign) {
    const names = tables.length > 0 ? `has the tables ${tables.slice(0, MAX_NAMED).join(', ')}` : 'is empty';
    throw new ForeignDatabase(
      `${file} is a database of another program: it ${names}. Name another folder with --data, or move the file away`,
    );
  }
  if (version > MIGRATIONS.length) {
    throw new ForeignDatabase(
      `the database ${file} has version ${version}, this server knows up to ${MIGRATIONS.length}: run the newer server that wrote it, or name another folder with --data`,
    );
  }
}

/** Upgrades a database of this server to this code's version; `user_version` has its present one. */
function migrate(database: DatabaseSync): void {
  if (versionOf(database) === MIGRATIONS.length) return;
  inTransaction(database, () => {
    // Another process may have been quicker.
    for (const statements of MIGRATIONS.slice(versionOf(database))) database.exec(statements);
    database.exec(`PRAGMA user_version = ${MIGRATIONS.length}`);
  });
}

function versionOf(database: DatabaseSync): number {
  return (database.prepare('PRAGMA user_version').get() as { user_version: number }).user_version;
}

function tablesOf(database: DatabaseSync): string[] {
  const rows = database.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").all();
  return (rows as { name: string }[]).map(({ name }) => name).filter(name => !name.startsWith('sqlite_'));
}

/** Runs work as one transaction that no other process can write between. */
export function inTransaction<T>(database: DatabaseSync, work: () => T): T {
  try {
    database.exec('BEGIN IMMEDIATE');
    const result = work();
    database.exec('COMMIT');
    return result;
  } catch (error) {
    // After some faults, such as a full disk, SQLite has rolled back already.
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}
