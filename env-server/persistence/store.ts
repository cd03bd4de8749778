import { join } from 'node:path';
import { DamagedDatabase, damageOf } from './damage.ts';
import { DATABASE_FILE, openDatabase } from './database.ts';
import { PersistenceHealth } from './persistence-health.ts';
import { SqliteStore } from './sqlite-store.ts';
import type { AuditEntry, AuditPage, StoredEnvironment } from './stored-environment.ts';
import { DatabaseThread } from './thread/database-thread.ts';
import { type HealthNews, revivedError } from './thread/protocol.ts';

/** Milliseconds that opening the database waits for another process's write. */
const START_PATIENCE_MS = 5000;
/** The same for reading while the server runs, which blocks the event loop. */
const READ_PATIENCE_MS = 20;

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
 * @throws ForeignDatabase, DamagedDatabase
 */
export function openStore(folder?: string, health = new PersistenceHealth()): Store {
  return new DatabaseStore(folder, health);
}

/**
 * Reads the whole database, once at the start of a server: later, damage would fail a request.
 * @param folder made where it is missing
 * @throws ForeignDatabase, DamagedDatabase
 */
export function checkDatabase(folder: string): void {
  const database = openDatabase(folder, START_PATIENCE_MS);
  const [damage] = damageOf(database);
  database.close();
  if (damage !== undefined) throw new DamagedDatabase(join(folder, DATABASE_FILE), new Error(damage));
}

/** The store in the embedded database. It reads in the event loop and, where there is a file, writes in a thread. */
class DatabaseStore implements Store {
  readonly durable: boolean;
  readonly #local: SqliteStore;
  readonly #health: PersistenceHealth;
  readonly #thread: DatabaseThread | undefined;

  constructor(folder: string | undefined, health: PersistenceHealth) {
    const database = openDatabase(folder, START_PATIENCE_MS);
    database.exec(`PRAGMA busy_timeout = ${READ_PATIENCE_MS}`);
    this.#local = new SqliteStore(database, health);
    this.#health = health;
    this.durable = folder !== undefined;
    if (folder !== undefined) {
      this.#thread = new DatabaseThread({ folder, onHealth: news => this.#hear(news) });
    }
  }

  environments(): StoredEnvironment[] {
    return this.#local.environments();
  }

  async putEnvironment(environment: StoredEnvironment, entry: AuditEntry): Promise<boolean> {
    if (!this.#thread) return this.#local.putEnvironment(environment, entry);
    return this.#thread.write('putEnvironment', environment, entry);
  }

  rewriteDefinitions(environments: readonly StoredEnvironment[]): void {
    this.#local.rewriteDefinitions(environments);
  }

  async removeEnvironment(envId: string, entry: AuditEntry): Promise<void> {
    if (!this.#thread) this.#local.removeEnvironment(envId, entry);
    else await this.#thread.write('removeEnvironment', envId, entry);
  }

  note(entry: AuditEntry): void {
    if (!this.#thread) this.#local.note(entry);
    else this.#thread.write('note', entry).catch(error => this.#health.failed('environments', error));
  }

  audit(limit: number, before?: string): AuditPage {
    return this.#local.audit(limit, before);
  }

  async close(): Promise<void> {
    await this.#thread?.close();
    this.#local.close();
  }

  #hear(news: HealthNews): void {
    const health = this.#health;
    if (news.state === 'succeeded') health.succeeded('environments');
    else if (news.state === 'failed') health.failed('environments', revivedError(news.error));
    else health.waiting('environments', news.bytes);
  }
}
