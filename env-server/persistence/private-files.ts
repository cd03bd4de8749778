import { chmodSync, closeSync, existsSync, openSync, statSync } from 'node:fs';
import { makeFolder } from '../../shared/make-folder.ts';

/** Only the server's user may access its files: they hold what clients and remote services entrust to it. */
export const PRIVATE_FILE = 0o600;
export const PRIVATE_FOLDER = 0o700;

const OTHERS = 0o077;

/** Makes a private folder; an existing one keeps its mode, because others may have files in it. */
export function makePrivateFolder(folder: string): void {
  makeFolder(folder, PRIVATE_FOLDER);
}

/**
 * Makes a private file where it is missing, and makes an existing one private. SQLite gives its `-wal` and `-shm` files
 * the mode of the database, so this comes before it is opened.
 */
export function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, 'a', PRIVATE_FILE));
  tighten(path);
}

/** Makes an existing file private to its owner. */
export function tighten(path: string): void {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat && (stat.mode & OTHERS) !== 0) chmodSync(path, stat.mode & ~OTHERS & 0o777);
}
