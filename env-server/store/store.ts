import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { JsonObject } from '../../shared/json.ts';
import { migrate } from './schema.ts';

export const DATABASE_FILE = 'ragen.db';
/** How long a write waits for another process to finish its own. */
const BUSY_TIMEOUT_MS = 5000;

/** A custom environment as it is kept. */
export interface StoredEnvironment {
  readonly envId: string;
  readonly kind: string;
  readonly definition: JsonObject;
  /** What was learnt at registration and is needed to make the environment again, e.g. a remote server's document. */
  readonly facts: JsonObject;
  readonly owner: string;
  /** Counts replacements, from 1. */
  readonly revision: number;
  /** Milliseconds since the epoch. */
  readonly registeredAt: number;
  readonly replacedAt: number | null;
}

export type AuditAction = 'register' | 'replace' | 'remove';

/** Who did what to which custom environment. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly principal: string;
  readonly action: AuditAction;
  readonly envId: string;
  readonly kind: string;
  /** Of the definition's JSON. */
  readonly sha256: string;
}

/** What a server remembers beyond its process. */
export interface Store {
  /** Whether it outlives the process. */
  readonly durable: boolean;
  /** Custom environments in the order in which they were first registered. */
  environments(): StoredEnvironment[];
  /**
   * Adds an environment of revision 1, or replaces one, and notes it in the audit log; both or neither.
   * @returns false, with nothing done, when one is to be added whose id is taken
   */
  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): boolean;
  /** Removes an environment and notes it in the audit log; both or neither. */
  removeEnvironment(envId: string, entry: AuditEntry): void;
  /** The audit log, oldest first. */
  audit(): AuditEntry[];
  /** Whether another process has written since this was last asked, or since it was opened. */
  changedElsewhere(): boolean;
  close(): void;
}

/**
 * Opens the embedded database.
 * @param folder made where it is missing; undefined keeps everything in memory, until the process ends
 * @throws Error when the database was written by a newer version, or is none
 */
export function openStore(folder?: string): Store {
  if (folder !== undefined) mkdirSync(folder, { recursive: true });
  const database = new DatabaseSync(folder === undefined ? ':memory:' : join(folder, DATABASE_FILE), {
    timeout: BUSY_TIMEOUT_MS,
  });
  // A committed transaction survives the end of the process at any instant; only a crash of the machine may undo the last ones.
  database.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
  migrate(database);
  return new SqliteStore(database, folder !== undefined);
}

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

class SqliteStore implements Store {
  readonly durable: boolean;
  readonly #database: DatabaseSync;
  #version: number;

  constructor(database: DatabaseSync, durable: boolean) {
    this.#database = database;
    this.#version = dataVersion(database);
    this.durable = durable;
  }

  environments(): StoredEnvironment[] {
    const rows = this.#database
      .prepare('SELECT * FROM environments ORDER BY registered_at, env_id')
      .all() as unknown as EnvironmentRow[];
    return rows.map(row => ({
      envId: row.env_id,
      kind: row.kind,
      definition: JSON.parse(row.definition) as JsonObject,
      facts: JSON.parse(row.facts) as JsonObject,
      owner: row.owner,
      revision: row.revision,
      registeredAt: row.registered_at,
      replacedAt: row.replaced_at,
    }));
  }

  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): boolean {
    return this.#transaction(() => {
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
          JSON.stringify(environment.definition),
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

  removeEnvironment(envId: string, entry: AuditEntry): void {
    this.#transaction(() => {
      this.#database.prepare('DELETE FROM environments WHERE env_id = ?').run(envId);
      this.#note(entry);
    });
  }

  audit(): AuditEntry[] {
    return this.#database
      .prepare('SELECT at, principal, action, env_id AS envId, kind, sha256 FROM audit ORDER BY id')
      .all()
      .map(row => ({ ...row }) as unknown as AuditEntry);
  }

  changedElsewhere(): boolean {
    const before = this.#version;
    this.#version = dataVersion(this.#database);
    return this.#version !== before;
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  #note({ at, principal, action, envId, kind, sha256 }: AuditEntry): void {
    this.#database
      .prepare('INSERT INTO audit (at, principal, action, env_id, kind, sha256) VALUES (?, ?, ?, ?, ?, ?)')
      .run(at, principal, action, envId, kind, sha256);
  }

  #has(envId: string): boolean {
    return this.#database.prepare('SELECT 1 FROM environments WHERE env_id = ?').get(envId) !== undefined;
  }

  #transaction<T>(work: () => T): T {
    this.#database.exec('BEGIN IMMEDIATE');
    try {
      const result = work();
      this.#database.exec('COMMIT');
      return result;
    } catch (error) {
      this.#database.exec('ROLLBACK');
      throw error;
    }
  }
}

/** Changes when another connection commits. */
function dataVersion(database: DatabaseSync): number {
  return (database.prepare('PRAGMA data_version').get() as { data_version: number }).data_version;
}
