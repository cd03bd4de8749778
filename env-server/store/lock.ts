import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** Locked by the server that keeps its sessions in a folder. */
const LOCK_FILE = 'sessions.lock';
/** Shared by the processes of a server that has several: they may outlive the one that holds the lock by a moment. */
const WORKERS_LOCK_FILE = 'workers.lock';
const WORKERS_PATIENCE_MS = 10_000;
const SQLITE_BUSY = 5;

/** Held by the one server that keeps its sessions in a folder. */
export interface FolderLock {
  release(): void;
}

/**
 * Takes the folder's lock. The operating system gives it back when the process ends, however it ends.
 * @returns undefined while another process holds it
 */
export function lockFolder(folder: string): FolderLock | undefined {
  mkdirSync(folder, { recursive: true });
  const lock = locked(join(folder, LOCK_FILE), 0);
  if (!lock) return undefined;
  // Workers of a server that was killed are writing their sessions.
  const workers = locked(join(folder, WORKERS_LOCK_FILE), WORKERS_PATIENCE_MS);
  if (!workers) {
    lock.release();
    return undefined;
  }
  workers.release();
  return lock;
}

/** Keeps servers that come next waiting until this process, a worker of the one that has the lock, has ended. */
export function holdFolder(folder: string): FolderLock {
  const database = new DatabaseSync(join(folder, WORKERS_LOCK_FILE), { timeout: WORKERS_PATIENCE_MS });
  // Reading within a transaction takes a shared lock.
  database.exec('BEGIN; SELECT count(*) FROM sqlite_master');
  return lockOf(database);
}

function locked(file: string, patienceMs: number): FolderLock | undefined {
  const database = new DatabaseSync(file, { timeout: patienceMs });
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
  return lockOf(database);
}

function lockOf(database: DatabaseSync): FolderLock {
  return {
    release() {
      if (database.isOpen) database.close();
    },
  };
}
