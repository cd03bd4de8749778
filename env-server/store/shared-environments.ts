import type { Logger } from 'pino';
import type { Store } from '../persistence/store.ts';
import type { AuditEntry, AuditPage, StoredEnvironment } from '../persistence/stored-environment.ts';
import type { SessionStore } from './session-store.ts';

/** Custom environments that several servers share, as far as this server has read them. */
export class SharedEnvironments implements Store {
  readonly durable = true;
  readonly #store: SessionStore;
  readonly #log: Logger;
  #rows: readonly StoredEnvironment[] = [];
  #revision = '';
  #changed = false;

  private constructor(store: SessionStore, log: Logger) {
    this.#store = store;
    this.#log = log;
  }

  static async open(store: SessionStore, log: Logger): Promise<SharedEnvironments> {
    const environments = new SharedEnvironments(store, log);
    await environments.refresh();
    environments.#changed = false;
    return environments;
  }

  /** Reads what other servers have registered, replaced and removed. Returns true when something has changed. */
  async refresh(): Promise<boolean> {
    const revision = await this.#store.environmentsRevision();
    if (revision === this.#revision) return false;
    this.#rows = await this.#store.environments();
    this.#revision = revision;
    this.#changed = true;
    return true;
  }

  environments(): StoredEnvironment[] {
    return [...this.#rows];
  }

  async putEnvironment(environment: StoredEnvironment, entry: AuditEntry): Promise<boolean> {
    const revision = await this.#store.putEnvironment(environment.envId, environment, entry);
    return revision !== undefined;
  }

  rewriteDefinitions(): void {
    throw new Error('a shared store has no definitions of an older form');
  }

  async removeEnvironment(envId: string, entry: AuditEntry): Promise<void> {
    await this.#store.putEnvironment(envId, undefined, entry);
  }

  note(entry: AuditEntry): void {
    this.#store
      .note(entry)
      .catch(error =>
        this.#log.error({ err: error, ...entry }, 'the audit log of the store does not have this'),
      );
  }

  audit(limit: number, before?: string): Promise<AuditPage> {
    return this.#store.audit(limit, before);
  }

  changedElsewhere(): boolean {
    const changed = this.#changed;
    this.#changed = false;
    return changed;
  }

  async close(): Promise<void> {
    this.#store.connection.close();
  }
}
