import type { DatabaseSync } from 'node:sqlite';
import type { JsonObject } from '../../shared/json.ts';
import { openDatabase } from './database.ts';
import { inTransaction } from './transaction.ts';

/** How long a write waits for another process to finish its own. */
const BUSY_TIMEOUT_MS = 5000;
/** Oldest entries of the audit log go when there are more. */
const AUDIT_KEPT = 100_000;

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

/** Who did, or was refused to do, what to which custom environment. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly principal: string;
  readonly action: AuditAction;
  readonly envId: string;
  readonly kind: string;
  /** Of the definition's JSON, without the values of headers. */
  readonly sha256: string;
  /** `accepted`, or the code of the problem it was refused with. */
  readonly outcome: string;
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
  /**
   * Writes definitions anew, unless they were replaced meanwhile, and leaves nothing of the old ones in the files.
   */
  rewriteDefinitions(environments: readonly StoredEnvironment[]): void;
  /** Removes an environment and notes it in the audit log; both or neither. */
  removeEnvironment(envId: string, entry: AuditEntry): void;
  /** Notes what changed nothing. */
  note(entry: AuditEntry): void;
  /** The audit log, oldest first. */
  audit(): AuditEntry[];
  /** Whether another process has noted anything since this was last asked, or since it was opened. */
  changedElsewhere(): boolean;
  close(): void;
}

/**
 * Opens the embedded database.
 * @param folder made where it is missing; undefined keeps everything in memory, until the process ends
 * @param passing the folder ends with the server
 * @throws Error when the database was written by a newer version, or is none
 */
export function openStore(folder?: string, passing = false): Store {
  return new SqliteStore(openDatabase(folder, BUSY_TIMEOUT_MS), folder !== undefined && !passing);
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
  /** Number of the newest note that is this process's own or known to have been another's. */
  #noted: number;

  constructor(database: DatabaseSync, durable: boolean) {
    this.#database = database;
    this.#noted = lastNote(database);
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
    return inTransaction(this.#database, () => {
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
    inTransaction(this.#database, () => {
      this.#database.prepare('DELETE FROM environments WHERE env_id = ?').run(envId);
      this.#note(entry);
    });
  }

  note(entry: AuditEntry): void {
    inTransaction(this.#database, () => this.#note(entry));
  }

  audit(): AuditEntry[] {
    return this.#database
      .prepare('SELECT at, principal, action, env_id AS envId, kind, sha256, outcome FROM audit ORDER BY id')
      .all()
      .map(row => ({ ...row }) as unknown as AuditEntry);
  }

  changedElsewhere(): boolean {
    const before = this.#noted;
    this.#noted = lastNote(this.#database);
    return this.#noted !== before;
  }

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  #note({ at, principal, action, envId, kind, sha256, outcome }: AuditEntry): void {
    const { lastInsertRowid } = this.#database
      .prepare(
        'INSERT INTO audit (at, principal, action, env_id, kind, sha256, outcome) VALUES (?, ?, ?, ?, ?, ?, ?)',
      )
      .run(at, principal, action, envId, kind, sha256, outcome);
    this.#database.prepare('DELETE FROM audit WHERE id <= ?').run(Number(lastInsertRowid) - AUDIT_KEPT);
    if (Number(lastInsertRowid) === this.#noted + 1) this.#noted++;
  }

  #has(envId: string): boolean {
    return this.#database.prepare('SELECT 1 FROM environments WHERE env_id = ?').get(envId) !== undefined;
  }
}

/** Notes are numbered one after the other. */
function lastNote(database: DatabaseSync): number {
  return (database.prepare('SELECT coalesce(max(id), 0) AS id FROM audit').get() as { id: number }).id;
}
