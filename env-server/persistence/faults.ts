import type { DatabaseSync } from 'node:sqlite';
import { Problem, type ProblemCode } from '../problems.ts';

/** Problems of the disk. */
export type StorageCode = Extract<ProblemCode, 'storage_full' | 'storage_failed'>;

/** Fault of a write, for the client and for `/readyz`; contains no paths. */
export interface StorageFault {
  readonly code: StorageCode;
  /** e.g. `no space is left on the disk (ENOSPC)`. */
  readonly reason: string;
}

/** Seconds until it is worth trying the disk again. */
export const STORAGE_RETRY_SECONDS = 10;

/** Error codes of the operating system. */
const SYSTEM_FAULTS: { readonly [code: string]: StorageFault } = {
  ENOSPC: { code: 'storage_full', reason: 'no space is left on the disk (ENOSPC)' },
  EDQUOT: { code: 'storage_full', reason: 'the disk quota is used up (EDQUOT)' },
  EFBIG: { code: 'storage_full', reason: 'the file would exceed the largest permitted size (EFBIG)' },
  EROFS: { code: 'storage_failed', reason: 'the file system is read-only (EROFS)' },
  EACCES: { code: 'storage_failed', reason: 'writing the file is not permitted (EACCES)' },
  EPERM: { code: 'storage_failed', reason: 'writing the file is not permitted (EPERM)' },
  EIO: { code: 'storage_failed', reason: 'the disk reports an input/output error (EIO)' },
  ENOENT: { code: 'storage_failed', reason: 'the data folder is gone (ENOENT)' },
  EBADF: { code: 'storage_failed', reason: 'the file was closed (EBADF)' },
  EMFILE: { code: 'storage_failed', reason: 'the process has too many open files (EMFILE)' },
  ENFILE: { code: 'storage_failed', reason: 'the system has too many open files (ENFILE)' },
  ETIMEDOUT: { code: 'storage_failed', reason: 'the disk has taken a write for longer than 1 s (ETIMEDOUT)' },
  ESTALE: { code: 'storage_failed', reason: 'the network file system lost the file (ESTALE)' },
};

const PRIMARY_CODE = 0xff;
/** Primary result codes of SQLite (https://www.sqlite.org/rescode.html). */
const SQLITE_FAULTS: { readonly [code: number]: StorageFault } = {
  5: { code: 'storage_failed', reason: 'another write holds the database (SQLITE_BUSY)' },
  8: { code: 'storage_failed', reason: 'the database is read-only (SQLITE_READONLY)' },
  10: { code: 'storage_failed', reason: 'the disk reports an error (SQLITE_IOERR)' },
  11: { code: 'storage_failed', reason: 'the database is damaged (SQLITE_CORRUPT)' },
  13: { code: 'storage_full', reason: 'no space is left for the database (SQLITE_FULL)' },
  14: { code: 'storage_failed', reason: 'the database file cannot be opened (SQLITE_CANTOPEN)' },
  26: { code: 'storage_failed', reason: 'the file is not a database (SQLITE_NOTADB)' },
};

/** The disk fault behind an error of the file system or of SQLite; undefined for other errors. */
export function storageFaultOf(error: unknown): StorageFault | undefined {
  const { code, errcode } = (error ?? {}) as { readonly code?: unknown; readonly errcode?: unknown };
  if (code === 'ERR_SQLITE_ERROR' && typeof errcode === 'number')
    return SQLITE_FAULTS[errcode & PRIMARY_CODE];
  return typeof code === 'string' && Object.hasOwn(SYSTEM_FAULTS, code) ? SYSTEM_FAULTS[code] : undefined;
}

/** The problem for a request that failed because of the disk; any other error as it is. */
export function problemOf(error: unknown): unknown {
  const fault = storageFaultOf(error);
  if (!fault) return error;
  return new Problem(fault.code, `nothing was changed: ${fault.reason}`, {
    retryAfterSeconds: STORAGE_RETRY_SECONDS,
    cause: error,
  });
}

const SQLITE_CORRUPT = 11;
const SQLITE_NOTADB = 26;

/** The database is damaged; the message has the remedy. */
export class DamagedDatabase extends Error {
  override readonly name = 'DamagedDatabase';
  readonly file: string;

  constructor(file: string, cause: Error) {
    super(
      `the database ${file} is damaged (${cause.message}). Restore it from a backup, or start the server once with --repair: that keeps what can be read in a new database, keeps the damaged one under another name, and says what was lost`,
      { cause },
    );
    this.file = file;
  }
}

/** True if an error of SQLite means that the file is damaged. */
export function isDamage(error: unknown): boolean {
  const { code, errcode } = (error ?? {}) as { readonly code?: unknown; readonly errcode?: unknown };
  if (code !== 'ERR_SQLITE_ERROR' || typeof errcode !== 'number') return false;
  const primary = errcode & PRIMARY_CODE;
  return primary === SQLITE_CORRUPT || primary === SQLITE_NOTADB;
}

/** Faults that SQLite finds in a database, e.g. a page that belongs to no table; empty for a sound one. */
export function damageOf(database: DatabaseSync): string[] {
  try {
    const rows = database.prepare('PRAGMA quick_check(10)').all() as { quick_check: string }[];
    return rows.map(({ quick_check }) => quick_check).filter(line => line !== 'ok');
  } catch (error) {
    if (isDamage(error)) return [(error as Error).message];
    throw error;
  }
}
