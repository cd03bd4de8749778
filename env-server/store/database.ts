import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { migrate } from './schema.ts';

export const DATABASE_FILE = 'ragen.db';

/**
 * Opens the embedded database, made and brought up to date where that is needed.
 * @param folder made where it is missing; undefined keeps everything in memory
 * @param patienceMs how long a write waits for another process to finish its own
 * @throws Error when the database was written by a newer version, or is none
 */
export function openDatabase(folder: string | undefined, patienceMs: number): DatabaseSync {
  if (folder !== undefined) mkdirSync(folder, { recursive: true });
  const database = new DatabaseSync(folder === undefined ? ':memory:' : join(folder, DATABASE_FILE), {
    timeout: patienceMs,
  });
  // A committed transaction survives the end of the process at any instant; only a crash of the machine may undo the last ones.
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
  migrate(database);
  return database;
}
