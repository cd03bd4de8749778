import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { Problem } from '../problems.ts';
import { DATABASE_FILE, openDatabase } from './database.ts';
import {
  type AuditEntry,
  type AuditPage,
  EnvironmentRows,
  type StoredEnvironment,
} from './environment-rows.ts';
import {
  DamagedDatabase,
  damageOf,
  PersistenceHealth,
  problemOf,
  RetryTimer,
  storageFaultOf,
} from './persistence-health.ts';
import { DatabaseThread } from './thread/database-thread.ts';

/** Milliseconds that opening the database waits for another process's write. */
const START_PATIENCE_MS = 5000;
/** The same for reading while the server runs, which blocks the event loop. */
const READ_PATIENCE_MS = 20;
/** Most entries that wait for a disk that accepts no writes; the oldest are dropped. They are in the log as well. */
const MAX_WAITING_NOTES = 1000;
const MIN_TRY_BYTES = 4096;

/** Data that a server keeps beyond its process. */
export interface Store {
  /** True if it outlives the process. */
  readonly durable: boolean;
  /** Custom environments in the order in which they were first registered. */
  environments(): StoredEnvironment[];
  /**
   * Adds an environment of revision 1, or replaces one, with its entry in the audit log; both or neither.
   * @returns false, with nothing done, when the id of an added one is taken
   * @throws Problem `storage_full`, `storage_failed`
   */
  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): Promise<boolean>;
  /**
   * Rewrites definitions, unless they were replaced meanwhile, and leaves nothing of the old ones in the files. For the
   * start of a server: it blocks.
   */
  rewriteDefinitions(environments: readonly StoredEnvironment[]): void;
  /**
   * Removes an environment, with its entry in the audit log; both or neither.
   * @throws Problem `storage_full`, `storage_failed`
   */
  removeEnvironment(envId: string, entry: AuditEntry): Promise<void>;
  /** Records an entry without a change soon, or once the disk accepts writes. */
  note(entry: AuditEntry): void;
  /** @param before `next` of the previous page */
  audit(limit: number, before?: string): AuditPage | Promise<AuditPage>;
  /** Resolves when everything requested is written. */
  close(): Promise<void>;
}

/**
 * Opens the embedded database.
 * @param folder made where it is missing; undefined keeps everything in memory, until the process ends
 * @param health gets a report of each write
 * @throws ForeignDatabase, DamagedDatabase; Problem `storage_full`, `storage_failed`
 */
export function openStore(folder?: string, health = new PersistenceHealth()): Store {
  const database = opened(folder);
  database.exec(`PRAGMA busy_timeout = ${READ_PATIENCE_MS}`);
  const thread = folder === undefined ? undefined : new DatabaseThread({ folder });
  return new DatabaseStore(database, health, thread);
}

/**
 * Reads the whole database, once at the start of a server: later, damage would fail a request.
 * @param folder made where it is missing
 * @throws ForeignDatabase, DamagedDatabase; Problem `storage_full`, `storage_failed`
 */
export function checkDatabase(folder: string): void {
  using database = opened(folder);
  const [damage] = damageOf(database);
  if (damage !== undefined) throw new DamagedDatabase(join(folder, DATABASE_FILE), new Error(damage));
}

function opened(folder: string | undefined): DatabaseSync {
  return diskFaultsAsProblems(() => openDatabase(folder, START_PATIENCE_MS));
}

/**
 * The store in the embedded database. It reads in the event loop and, where there is a file, writes in a thread. Entries of
 * the audit log that the disk does not take are written with the next change, or when the disk takes writes again.
 */
export class DatabaseStore implements Store {
  readonly durable: boolean;
  readonly #rows: EnvironmentRows;
  readonly #health: PersistenceHealth;
  readonly #thread: DatabaseThread | undefined;
  readonly #retry = new RetryTimer(() => void this.#tryDisk());
  #waiting: readonly AuditEntry[] = [];
  /** Size of the largest write that failed for lack of room; 0 while there is room. */
  #needed = 0;
  /** Resolves when the last write is done. */
  #last: Promise<unknown> = Promise.resolve();

  constructor(database: DatabaseSync, health: PersistenceHealth, thread?: DatabaseThread) {
    this.#rows = new EnvironmentRows(database);
    this.#health = health;
    this.#thread = thread;
    this.durable = database.location() !== null;
  }

  environments(): StoredEnvironment[] {
    return this.#rows.environments();
  }

  rewriteDefinitions(environments: readonly StoredEnvironment[]): void {
    diskFaultsAsProblems(() => this.#rows.rewriteDefinitions(environments));
  }

  /** @throws Problem `storage_failed` */
  audit(limit: number, before?: string): AuditPage {
    return diskFaultsAsProblems(() => this.#rows.audit(limit, before));
  }

  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): Promise<boolean> {
    const { length } = JSON.stringify(environment.definition);
    return this.#write(length, earlier =>
      this.#thread
        ? this.#thread.write('putEnvironment', environment, entry, earlier)
        : this.#rows.putEnvironment(environment, entry, earlier),
    );
  }

  removeEnvironment(envId: string, entry: AuditEntry): Promise<void> {
    return this.#write(0, earlier =>
      this.#thread
        ? this.#thread.write('removeEnvironment', envId, entry, earlier)
        : this.#rows.removeEnvironment(envId, entry, earlier),
    );
  }

  note(entry: AuditEntry): void {
    this.#wait([...this.#waiting, entry]);
    void this.#unattended(this.#noteWaiting());
  }

  #noteWaiting(): Promise<void> {
    return this.#write(0, earlier =>
      this.#thread ? this.#thread.write('note', earlier) : this.#rows.note(earlier),
    );
  }

  async close(): Promise<void> {
    await this.#last;
    if (this.#waiting.length > 0) await this.#noteWaiting().catch(() => undefined);
    this.#retry.stop();
    await this.#thread?.close();
    this.#rows.close();
  }

  /**
   * Writes, together with the entries that wait.
   * @param size bytes of a large write: after a full disk a smaller write does not prove that there is room
   * @throws Problem `storage_full`, `storage_failed`
   */
  #write<T>(size: number, work: (earlier: readonly AuditEntry[]) => Promise<T> | T): Promise<T> {
    const earlier = this.#waiting;
    this.#waiting = [];
    const written = (async () => work(earlier))().then(
      result => {
        this.#succeed(size);
        return result;
      },
      error => {
        if (storageFaultOf(error)) {
          this.#wait([...earlier, ...this.#waiting]);
          this.#fail(size, error);
        }
        throw problemOf(error);
      },
    );
    this.#last = written.catch(() => undefined);
    return written;
  }

  #wait(entries: readonly AuditEntry[]): void {
    this.#waiting = entries.slice(-MAX_WAITING_NOTES);
  }

  #succeed(size: number): void {
    this.#reportWaiting();
    if (size < this.#needed) return;
    this.#needed = 0;
    this.#retry.succeeded();
    this.#health.succeeded('environments');
  }

  #fail(size: number, error: unknown): void {
    this.#needed = Math.max(this.#needed, size);
    this.#reportWaiting();
    this.#health.failed('environments', error);
    this.#retry.failed();
  }

  #reportWaiting(): void {
    const bytes = this.#waiting.length === 0 ? 0 : JSON.stringify(this.#waiting).length;
    this.#health.waiting('environments', bytes);
  }

  /** Tests the disk with the size that failed. */
  #tryDisk(): Promise<void> {
    const size = Math.max(this.#needed, MIN_TRY_BYTES);
    return this.#unattended(
      this.#write(size, earlier =>
        this.#thread ? this.#thread.write('tryDisk', size, earlier) : this.#rows.tryDisk(size, earlier),
      ),
    );
  }

  /** A write without a caller: what is no fault of the disk is reported, too, e.g. a thread that ended. */
  async #unattended(write: Promise<void>): Promise<void> {
    try {
      await write;
    } catch (error) {
      if (!(error instanceof Problem)) this.#fail(0, error);
    }
  }
}

function diskFaultsAsProblems<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw problemOf(error);
  }
}
