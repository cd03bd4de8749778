import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

const LOCK_FILE = 'sessions.lock';

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
  const database = new DatabaseSync(join(folder, LOCK_FILE), { timeout: 0 });
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
  return {
    release() {
      if (database.isOpen) database.close();
    },
  };
}

const SQLITE_BUSY = 5;
