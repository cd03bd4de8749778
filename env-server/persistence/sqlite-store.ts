import type { DatabaseSync } from 'node:sqlite';
import type { JsonObject } from '../../shared/json.ts';
import { DamagedDatabase } from './damage.ts';
import type { PersistenceHealth } from './persistence-health.ts';
import { RetryTimer } from './retry-timer.ts';
import { storageFaultOf, storageProblem } from './storage-problem.ts';
import {
  AUDIT_KEPT,
  type AuditEntry,
  type AuditPage,
  auditPage,
  type StoredEnvironment,
} from './stored-environment.ts';
import { inTransaction } from './transaction.ts';

/** Most entries that wait for a disk that accepts no writes; the oldest are dropped. They are in the log as well. */
const MAX_WAITING_NOTES = 1000;
const MIN_TRY_BYTES = 4096;

interface EnvironmentRow {
  env_id: string;
  kind: string;
  definition: string;
  facts: string;
  owner: string;
  revision: number;
  registered_at: number;
  replaced_at: number | null;
}

/** Reports of writes to {@link PersistenceHealth}. */
export type StoreHealth = Pick<PersistenceHealth, 'failed' | 'succeeded' | 'waiting'>;

/** Custom environments and the audit log in the embedded database. It writes at once, and blocks. */
export class SqliteStore {
  readonly #database: DatabaseSync;
  readonly #health: StoreHealth;
  readonly #retry = new RetryTimer(() => this.#try());
  #waiting: AuditEntry[] = [];
  /** Size of the largest write that failed for lack of room; 0 while there is room. */
  #needed = 0;

  /** @param health gets a report of each write */
  constructor(database: DatabaseSync, health: StoreHealth) {
    this.#database = database;
    this.#health = health;
  }

  /** Custom environments in the order in which they were first registered. */
  environments(): StoredEnvironment[] {
    const rows = this.#database
      .prepare('SELECT * FROM environments ORDER BY registered_at, env_id')
      .all() as unknown as EnvironmentRow[];
    return rows.map(row => ({
      envId: row.env_id,
      kind: row.kind,
      definition: this.#parse(row.definition, row.env_id),
      facts: this.#parse(row.facts, row.env_id),
      owner: row.owner,
      revision: row.revision,
      registeredAt: row.registered_at,
      replacedAt: row.replaced_at,
    }));
  }

  /** @returns false, with nothing done, when the id of an added one is taken */
  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): boolean {
    const definition = JSON.stringify(environment.definition);
    return this.#write(definition.length, () => {
      if (environment.revision === 1 && this.#has(environment.envId)) return false;
      this.#database
        .prepare(
          `INSERT INTO environments (env_id, kind, definition, facts, owner, revision, registered_at, replaced_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (env_id) DO UPDATE SET
             kind = excluded.kind, definition = excluded.definition, facts = excluded.facts,
             owner = excluded.owner, revision = excluded.revision, replaced_at = excluded.replaced_at`,
        )
        .run(
          environment.envId,
          environment.kind,
          definition,
          JSON.stringify(environment.facts),
          environment.owner,
          environment.revision,
          environment.registeredAt,
          environment.replacedAt,
        );
      this.#note(entry);
      return true;
    });
  }

  /** Leaves nothing of the old ones in the files. */
  rewriteDefinitions(environments: readonly StoredEnvironment[]): void {
    this.#database.exec('PRAGMA secure_delete = ON');
    inTransaction(this.#database, () => {
      const update = this.#database.prepare(
        'UPDATE environments SET definition = ? WHERE env_id = ? AND revision = ?',
      );
      for (const { envId, revision, definition } of environments) {
        update.run(JSON.stringify(definition), envId, revision);
      }
    });
    this.#database.exec('VACUUM; PRAGMA wal_checkpoint(TRUNCATE)');
  }

  removeEnvironment(envId: string, entry: AuditEntry): void {
    this.#write(0, () => {
      this.#database.prepare('DELETE FROM environments WHERE env_id = ?').run(envId);
      this.#note(entry);
    });
  }

  /** Records an entry without a change; if the disk accepts no writes, later. */
  note(entry: AuditEntry): void {
    try {
      this.#write(0, () => this.#note(entry));
    } catch (error) {
      if (!isStorageFault(error)) throw error;
      this.#waiting = [...this.#waiting, entry].slice(-MAX_WAITING_NOTES);
      this.#health.waiting('environments', JSON.stringify(this.#waiting).length);
    }
  }

  /** @throws Problem `storage_failed` */
  audit(limit: number, before?: string): AuditPage {
    const rows = readingDisk(() =>
      this.#database
        .prepare(
          'SELECT id, at, principal, action, env_id AS envId, kind, sha256, outcome FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?',
        )
        .all(before === undefined ? Number.MAX_SAFE_INTEGER : Number.parseInt(before, 10), limit + 1),
    );
    const found = rows.map(({ id, ...entry }) => [String(id), entry as unknown as AuditEntry] as const);
    return auditPage(found, limit);
  }

  close(): void {
    this.#retry.stop();
    if (!this.#database.isOpen) return;
    if (this.#waiting.length > 0) this.#try();
    this.#retry.stop();
    this.#database.close();
  }

  /**
   * Writes, together with the entries that wait.
   * @param size bytes of a large write: after a full disk a smaller write does not prove that there is room
   */
  #write<T>(size: number, work: () => T): T {
    let result: T;
    try {
      result = inTransaction(this.#database, () => {
        for (const entry of this.#waiting) this.#note(entry);
        return work();
      });
    } catch (error) {
      if (isStorageFault(error)) {
        this.#needed = Math.max(this.#needed, size);
        this.#health.failed('environments', error);
        this.#retry.failed();
      }
      throw error;
    }
    this.#waiting = [];
    this.#health.waiting('environments', 0);
    if (size >= this.#needed) {
      this.#needed = 0;
      this.#retry.succeeded();
      this.#health.succeeded('environments');
    }
    return result;
  }

  /** Tests the disk with the size that failed; the database keeps the pages for the client's next attempt. */
  #try(): void {
    const size = Math.max(this.#needed, MIN_TRY_BYTES);
    try {
      this.#write(size, () => {
        this.#database.exec('DROP TABLE IF EXISTS attempt; CREATE TABLE attempt (bytes BLOB) STRICT');
        this.#database.prepare('INSERT INTO attempt VALUES (zeroblob(?))').run(size);
      });
      this.#write(size, () => this.#database.exec('DROP TABLE IF EXISTS attempt'));
    } catch (error) {
      if (isStorageFault(error)) return;
      // For example another process that holds the database for long.
      this.#health.failed('environments', error);
      this.#retry.failed();
    }
  }

  #note({ at, principal, action, envId, kind, sha256, outcome }: AuditEntry): void {
    const { lastInsertRowid } = this.#database
      .prepare(
        'INSERT INTO audit (at, principal, action, env_id, kind, sha256, outcome) VALUES (?, ?, ?, ?, ?, ?, ?)',
      )
      .run(at, principal, action, envId, kind, sha256, outcome);
    this.#database.prepare('DELETE FROM audit WHERE id <= ?').run(Number(lastInsertRowid) - AUDIT_KEPT);
  }

  #parse(text: string, envId: string): JsonObject {
    try {
      return JSON.parse(text) as JsonObject;
    } catch (error) {
      const fault = `the definition of ${envId} is not JSON: ${(error as Error).message}`;
      throw new DamagedDatabase(this.#database.location() ?? 'in memory', new Error(fault));
    }
  }

  #has(envId: string): boolean {
    return this.#database.prepare('SELECT 1 FROM environments WHERE env_id = ?').get(envId) !== undefined;
  }
}

function readingDisk<T>(read: () => T): T {
  try {
    return read();
  } catch (error) {
    const fault = storageFaultOf(error);
    throw fault ? storageProblem(fault, error) : error;
  }
}

function isStorageFault(error: unknown): boolean {
  return storageFaultOf((error as Error).cause) !== undefined;
}
