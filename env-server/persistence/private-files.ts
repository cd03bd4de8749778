import { chmodSync, closeSync, existsSync, openSync, statSync } from 'node:fs';
import { makeFolder } from '../../shared/make-folder.ts';

/** Only the server's user may read and write what the server keeps: it holds what clients and remote services entrust to it. */
export const PRIVATE_FILE = 0o600;
export const PRIVATE_FOLDER = 0o700;

const OTHERS = 0o077;

/** Makes a folder for the server alone; one that is there keeps its mode, as others may have files in it. */
export function makePrivateFolder(folder: string): void {
  makeFolder(folder, PRIVATE_FOLDER);
}

/**
 * Makes a file for the server alone where it is missing, and takes an existing one away from everybody else.
 * SQLite gives its `-wal` and `-shm` files the mode of the database, so this comes before it is opened.
 */
export function makePrivateFile(path: string): void {
  if (!existsSync(path)) closeSync(openSync(path, 'a', PRIVATE_FILE));
  tighten(path);
}

/** Takes a file away from everybody but its owner, where it is there. */
export function tighten(path: string): void {
  const stat = statSync(path, { throwIfNoEntry: false });
  if (stat && (stat.mode & OTHERS) !== 0) chmodSync(path, stat.mode & ~OTHERS & 0o777);
}
