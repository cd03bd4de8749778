import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { DamagedDatabase, isDamage } from './damage.ts';
import { makePrivateFile, makePrivateFolder, tighten } from './private-files.ts';
import { ForeignDatabase, migrate, requireOwn } from './schema.ts';

const SQLITE_BUSY = 5;
export const DATABASE_FILE = 'ragen.db';

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
  makePrivateFile(path);
  for (const companion of COMPANIONS) tighten(path + companion);
  return opened(path, patienceMs);
}

function opened(path: string, timeout: number): DatabaseSync {
  const database = new DatabaseSync(path, { timeout });
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
