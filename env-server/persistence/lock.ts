import {
  chmodSync,
  closeSync,
  existsSync,
  openSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { hostname } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { makeFolder } from '../../shared/replace-file.ts';
import { isDamage } from './persistence-health.ts';

/** Locked by the server that uses a folder. */
const LOCK_FILE = 'sessions.lock';
/** Names the holder of the lock. */
const HOLDER_FILE = 'server.json';
/** Milliseconds that an ending server may take to release the lock. */
const PATIENCE_MS = 2000;
const SQLITE_BUSY = 5;

/** Held by the one server that uses a folder. */
export interface FolderLock {
  release(): void;
}

/** Another server uses the folder; the message names it. */
export class FolderInUse extends Error {
  override readonly name = 'FolderInUse';

  constructor(folder: string) {
    super(
      `${folder} is in use by another server${holderOf(folder)}. Stop that one, or give this one another folder with --data`,
    );
  }
}

/**
 * Takes the folder's lock. The operating system releases it when the process ends for any reason.
 * @throws FolderInUse while another process holds it; Error where it cannot be written to
 */
export function lockFolder(folder: string): FolderLock {
  const lock = firstLock(folder);
  if (!lock) throw new FolderInUse(folder);
  held.add(lock);
  noteHolder(folder);
  return {
    release() {
      rmSync(join(folder, HOLDER_FILE), { force: true });
      held.delete(lock);
      if (lock.isOpen) lock.close();
    },
  };
}

/** Locks that are kept from the garbage collector, which would close them. */
const held = new Set<DatabaseSync>();

/** @throws Error that names the folder where it cannot be written to */
function firstLock(folder: string): DatabaseSync | undefined {
  try {
    makePrivateFolder(folder);
    return locked(join(folder, LOCK_FILE));
  } catch (error) {
    if (isDamage(error)) {
      const path = join(folder, LOCK_FILE);
      throw new Error(
        `${path} is not a lock of this server; move it away, or name another folder with --data`,
        { cause: error },
      );
    }
    const why = `the data folder ${folder} cannot be written to (${(error as Error).message})`;
    throw new Error(`${why}; make it writable for this user, or name another one with --data`, {
      cause: error,
    });
  }
}

interface LockHolder {
  readonly pid: number;
  readonly host: string;
  /** ISO 8601. */
  readonly since: string;
}

/** Names the holder for people. The lock itself is another file, so a full disk prevents no start. */
function noteHolder(folder: string): void {
  const holder: LockHolder = { pid: process.pid, host: hostname(), since: new Date().toISOString() };
  try {
    writeFileSync(join(folder, HOLDER_FILE), `${JSON.stringify(holder)}\n`, { mode: PRIVATE_FILE });
  } catch {
    // A refused server then reports less.
  }
}

/** e.g. ` (process 123 on host, since 2026-01-01T00:00:00.000Z)`; empty where unknown. */
function holderOf(folder: string): string {
  try {
    const { pid, host, since } = JSON.parse(readFileSync(join(folder, HOLDER_FILE), 'utf8')) as LockHolder;
    return ` (process ${pid} on ${host}, since ${since})`;
  } catch {
    return '';
  }
}

function locked(file: string): DatabaseSync | undefined {
  makePrivateFile(file);
  const database = new DatabaseSync(file, { timeout: PATIENCE_MS });
  try {
    database.exec('BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if ((error as { errcode?: number }).errcode === SQLITE_BUSY) return undefined;
    throw error;
  }
  return database;
}

/** Boot id of the operating system, different after each boot; empty where the system has none. */
export function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return '';
  }
}

/** True if the machine has gone down since; false where the system does not say. */
export function isOfOtherBoot(boot: string): boolean {
  const now = bootId();
  return boot !== '' && now !== '' && boot !== now;
}

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
