import type { DatabaseSync } from 'node:sqlite';
import type { JsonObject } from '../../shared/json.ts';
import { inTransaction } from './database.ts';
import { DamagedDatabase } from './persistence-health.ts';

/** A stored custom environment. */
export interface StoredEnvironment {
  readonly envId: string;
  readonly kind: string;
  readonly definition: JsonObject;
  /** Facts found at registration that are needed to build the environment again, e.g. a remote server's document. */
  readonly facts: JsonObject;
  readonly owner: string;
  /** Counts replacements, from 1. */
  readonly revision: number;
  /** Milliseconds since the epoch. */
  readonly registeredAt: number;
  readonly replacedAt: number | null;
}

export type AuditAction = 'register' | 'replace' | 'remove';

/** A change of a custom environment, or a refused attempt: its principal, action and environment. */
export interface AuditEntry {
  /** Milliseconds since the epoch. */
  readonly at: number;
  readonly principal: string;
  readonly action: AuditAction;
  readonly envId: string;
  readonly kind: string;
  /** Hash of the definition's JSON, without the values of headers. */
  readonly sha256: string;
  /** `accepted`, or the code of the problem it was refused with. */
  readonly outcome: string;
}

/** Most entries of the audit log; the oldest are dropped. */
export const AUDIT_KEPT = 100_000;

/** Part of the audit log, newest first. */
export interface AuditPage {
  readonly entries: readonly AuditEntry[];
  /** Entry before which the next page begins; undefined on the last page. */
  readonly next: string | undefined;
}

/** A page of numbered entries, from a query for one more than it may have. */
export function auditPage(
  found: readonly (readonly [id: string, entry: AuditEntry])[],
  limit: number,
): AuditPage {
  const page = found.slice(0, limit);
  return {
    entries: page.map(([, entry]) => entry),
    next: found.length > limit ? page.at(-1)![0] : undefined,
  };
}

/** An environment with its JSON as text. */
type EnvironmentRow = Omit<StoredEnvironment, 'definition' | 'facts'> & {
  readonly definition: string;
  readonly facts: string;
};

/**
 * Custom environments and the audit log in the embedded database. A write blocks, and is done as a whole or not at all;
 * it throws errors of SQLite.
 */
export class EnvironmentRows {
  readonly #database: DatabaseSync;

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  /** Custom environments in the order in which they were first registered. */
  environments(): StoredEnvironment[] {
    const rows = this.#database
      .prepare(
        `SELECT env_id AS envId, kind, definition, facts, owner, revision, registered_at AS registeredAt,
           replaced_at AS replacedAt FROM environments ORDER BY registered_at, env_id`,
      )
      .all() as unknown as EnvironmentRow[];
    return rows.map(row => ({
      ...row,
      definition: this.#parse(row.definition, row.envId),
      facts: this.#parse(row.facts, row.envId),
    }));
  }

  #parse(text: string, envId: string): JsonObject {
    try {
      return JSON.parse(text) as JsonObject;
    } catch (error) {
      const fault = `the definition of ${envId} is not JSON: ${(error as Error).message}`;
      throw new DamagedDatabase(this.#database.location() ?? 'in memory', new Error(fault));
    }
  }

  audit(limit: number, before?: string): AuditPage {
    const rows = this.#database
      .prepare(
        'SELECT id, at, principal, action, env_id AS envId, kind, sha256, outcome FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?',
      )
      .all(before === undefined ? Number.MAX_SAFE_INTEGER : Number.parseInt(before, 10), limit + 1);
    const found = rows.map(({ id, ...entry }) => [String(id), entry as unknown as AuditEntry] as const);
    return auditPage(found, limit);
  }

  /**
   * @param earlier entries of the audit log that are written in any case
   * @returns false, without its entry, when the id of an added environment is taken
   */
  putEnvironment(
    { envId, kind, owner, revision, registeredAt, replacedAt, ...texts }: StoredEnvironment,
    entry: AuditEntry,
    earlier: readonly AuditEntry[],
  ): boolean {
    const [definition, facts] = [JSON.stringify(texts.definition), JSON.stringify(texts.facts)];
    return this.#noting(earlier, () => {
      const known = this.#database.prepare('SELECT 1 FROM environments WHERE env_id = ?').get(envId);
      if (revision === 1 && known) return false;
      this.#database
        .prepare(
          `INSERT INTO environments (env_id, kind, definition, facts, owner, revision, registered_at, replaced_at)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?)
           ON CONFLICT (env_id) DO UPDATE SET
             kind = excluded.kind, definition = excluded.definition, facts = excluded.facts,
             owner = excluded.owner, revision = excluded.revision, replaced_at = excluded.replaced_at`,
        )
        .run(envId, kind, definition, facts, owner, revision, registeredAt, replacedAt);
      this.#note(entry);
      return true;
    });
  }

  removeEnvironment(envId: string, entry: AuditEntry, earlier: readonly AuditEntry[]): void {
    this.#noting([...earlier, entry], () =>
      this.#database.prepare('DELETE FROM environments WHERE env_id = ?').run(envId),
    );
  }

  note(entries: readonly AuditEntry[]): void {
    this.#noting(entries, () => undefined);
  }

  /** Tests the disk with a write of this size; the database keeps the pages for the client's next attempt. */
  tryDisk(size: number, earlier: readonly AuditEntry[]): void {
    this.#noting(earlier, () => {
      this.#database.exec('DROP TABLE IF EXISTS attempt; CREATE TABLE attempt (bytes BLOB) STRICT');
      this.#database.prepare('INSERT INTO attempt VALUES (zeroblob(?))').run(size);
    });
    inTransaction(this.#database, () => this.#database.exec('DROP TABLE IF EXISTS attempt'));
  }

  /** Rewrites definitions, unless they were replaced meanwhile, and leaves nothing of the old ones in the files. */
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

  close(): void {
    if (this.#database.isOpen) this.#database.close();
  }

  #noting<T>(entries: readonly AuditEntry[], work: () => T): T {
    return inTransaction(this.#database, () => {
      for (const entry of entries) this.#note(entry);
      return work();
    });
  }

  #note({ at, principal, action, envId, kind, sha256, outcome }: AuditEntry): void {
    const { lastInsertRowid } = this.#database
      .prepare(
        'INSERT INTO audit (at, principal, action, env_id, kind, sha256, outcome) VALUES (?, ?, ?, ?, ?, ?, ?)',
      )
      .run(at, principal, action, envId, kind, sha256, outcome);
    this.#database.prepare('DELETE FROM audit WHERE id <= ?').run(Number(lastInsertRowid) - AUDIT_KEPT);
  }
}
