import type { DatabaseSync } from 'node:sqlite';
import type { Logger } from 'pino';
import { Problem, type ProblemCode } from '../problems.ts';

/** Parts that write to the data folder: custom environments, sessions at a checkpoint, operations as they happen. */
export const PERSISTENCE_PARTS = ['environments', 'checkpoint', 'journal'] as const;
export type PersistencePart = (typeof PERSISTENCE_PARTS)[number];

const MS_PER_S = 1000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;

/** State of a server's writes to its data folder; part of the reply of `/readyz`. */
export interface PersistenceReport {
  readonly state: 'ok' | 'degraded';
  /** Time of the first failed write since the last successful one, in ISO 8601. */
  readonly since: string | null;
  readonly reason: string | null;
  /** Bytes acknowledged, held in memory, and still to be written. */
  readonly bytes_waiting: number;
  /** Time since the last write; null before the first one. */
  readonly last_success_age_s: number | null;
}

/** State of the writes of one part. */
export interface PartHealth {
  failures: number;
  /** Milliseconds of `performance.now`; undefined before the first time. */
  lastSuccess: number | undefined;
  bytesWaiting: number;
  failing: { readonly since: number; readonly code: StorageCode; readonly reason: string } | undefined;
}

/** Tracks whether the server's writes to its data folder succeed; each writing part reports here. */
export class PersistenceHealth {
  readonly parts: { readonly [part in PersistencePart]: PartHealth };
  /** Size of the journal on disk. */
  journalBytes: () => number = () => 0;
  readonly #log: Logger | undefined;
  readonly #clock: () => number;

  /** @param clock monotonic, in milliseconds */
  constructor(log?: Logger, clock: () => number = () => performance.now()) {
    this.#log = log;
    this.#clock = clock;
    this.parts = Object.fromEntries(
      PERSISTENCE_PARTS.map(part => [
        part,
        { failures: 0, lastSuccess: undefined, bytesWaiting: 0, failing: undefined },
      ]),
    ) as { [part in PersistencePart]: PartHealth };
  }

  /** A write succeeded, which ends earlier failures. */
  succeeded(part: PersistencePart): void {
    const health = this.parts[part];
    health.lastSuccess = this.#clock();
    if (!health.failing) return;
    const seconds = Math.round((health.lastSuccess - health.failing.since) / MS_PER_S);
    health.failing = undefined;
    this.#log?.warn({ part }, `writing of the ${part} works again after ${seconds} s`);
  }

  /** A write failed. Only the first of several in a row is logged. */
  failed(part: PersistencePart, error: unknown): void {
    const health = this.parts[part];
    health.failures++;
    const fault = storageFaultOf(error);
    const code = fault?.code ?? 'storage_failed';
    const reason = fault?.reason ?? 'writing failed; the log of the server has the cause';
    const first = health.failing === undefined;
    health.failing = { since: health.failing?.since ?? this.#clock(), code, reason };
    if (first) this.#log?.error({ err: error, part }, `writing of the ${part} fails: ${reason}`);
  }

  waiting(part: PersistencePart, bytes: number): void {
    this.parts[part].bytesWaiting = bytes;
  }

  get degraded(): boolean {
    return this.#failing !== undefined;
  }

  /** The part that has failed longest. */
  get #failing(): PartHealth['failing'] {
    let longest: PartHealth['failing'];
    for (const part of PERSISTENCE_PARTS) {
      const { failing } = this.parts[part];
      if (failing && (longest === undefined || failing.since < longest.since)) longest = failing;
    }
    return longest;
  }

  /** Milliseconds since a part was last written; undefined before the first time. */
  age(part: PersistencePart): number | undefined {
    const { lastSuccess } = this.parts[part];
    return lastSuccess === undefined ? undefined : this.#clock() - lastSuccess;
  }

  report(): PersistenceReport {
    const failing = this.#failing;
    const ages = PERSISTENCE_PARTS.map(part => this.age(part)).filter(age => age !== undefined);
    return {
      state: failing ? 'degraded' : 'ok',
      since: failing ? new Date(Date.now() - (this.#clock() - failing.since)).toISOString() : null,
      reason: failing?.reason ?? null,
      bytes_waiting: PERSISTENCE_PARTS.reduce((sum, part) => sum + this.parts[part].bytesWaiting, 0),
      last_success_age_s: ages.length > 0 ? Math.round(Math.min(...ages)) / MS_PER_S : null,
    };
  }

  /** The reason why the server is not ready; undefined while all is well. */
  problem(): Problem | undefined {
    const failing = this.#failing;
    if (!failing) return undefined;
    const report = this.report();
    return new Problem(
      failing.code,
      `${failing.reason} since ${report.since}; ${report.bytes_waiting} bytes wait in memory to be written`,
      { retryAfterSeconds: STORAGE_RETRY_SECONDS, members: { persistence: report } },
    );
  }
}

/** Retries after a delay that doubles with each consecutive failure. */
export class RetryTimer {
  readonly #attempt: () => void;
  #delayMs = FIRST_DELAY_MS;
  #timer: NodeJS.Timeout | undefined;

  constructor(attempt: () => void) {
    this.#attempt = attempt;
  }

  /** True if an attempt is scheduled. */
  get pending(): boolean {
    return this.#timer !== undefined;
  }

  /** Schedules the next attempt, unless one is scheduled. */
  failed(): void {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#attempt();
    }, this.#delayMs).unref();
    this.#delayMs = Math.min(2 * this.#delayMs, MAX_DELAY_MS);
  }

  succeeded(): void {
    this.stop();
    this.#delayMs = FIRST_DELAY_MS;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}

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

  constructor(file: string, cause: Error) {
    super(
      `the database ${file} is damaged (${cause.message}). Restore it from a backup, or start the server once with --repair: that keeps what can be read in a new database, keeps the damaged one under another name, and says what was lost`,
      { cause },
    );
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
