import type { Logger } from 'pino';
import {
  AUDIT_KEPT,
  type AuditEntry,
  type AuditPage,
  auditPage,
  type StoredEnvironment,
} from '../persistence/environment-rows.ts';
import type { Store } from '../persistence/store.ts';
import type { StoreConnection } from './connection.ts';

/** Custom environments and the audit log in Valkey, shared by every server that is connected. */
export class SharedEnvironments implements Store {
  readonly durable = true;
  readonly #connection: StoreConnection;
  readonly #log: Logger;
  #rows: readonly StoredEnvironment[] = [];
  #revision = '';

  private constructor(connection: StoreConnection, log: Logger) {
    this.#connection = connection;
    this.#log = log;
  }

  static async open(connection: StoreConnection, log: Logger): Promise<SharedEnvironments> {
    const environments = new SharedEnvironments(connection, log);
    await environments.refresh();
    return environments;
  }

  /** Reads what other servers have registered, replaced and removed. Returns true when something has changed. */
  async refresh(): Promise<boolean> {
    const revision = (await this.#connection.command(client => client.get(this.#key('envrev')))) ?? '0';
    if (revision === this.#revision) return false;
    const rows = await this.#connection.command(client => client.hvals(this.#key('env')));
    this.#rows = rows
      .map(text => JSON.parse(text) as StoredEnvironment)
      .sort((a, b) => a.registeredAt - b.registeredAt || (a.envId < b.envId ? -1 : 1));
    this.#revision = revision;
    return true;
  }

  environments(): StoredEnvironment[] {
    return [...this.#rows];
  }

  putEnvironment(environment: StoredEnvironment, entry: AuditEntry): Promise<boolean> {
    return this.#put(environment.envId, environment, entry);
  }

  rewriteDefinitions(): void {
    throw new Error('a shared store has no definitions of an older form');
  }

  async removeEnvironment(envId: string, entry: AuditEntry): Promise<void> {
    await this.#put(envId, undefined, entry);
  }

  async #put(envId: string, environment: StoredEnvironment | undefined, entry: AuditEntry): Promise<boolean> {
    const isNew = environment?.revision === 1 ? 1 : 0;
    const args = [envId, environment ? JSON.stringify(environment) : '', isNew, JSON.stringify(entry)];
    return ((await this.#connection.write('ragenPutEnvironment', ...args)) as number) >= 0;
  }

  note(entry: AuditEntry): void {
    this.#connection
      .command(client =>
        client.xadd(this.#key('audit'), 'MAXLEN', '~', AUDIT_KEPT, '*', 'e', JSON.stringify(entry)),
      )
      .catch(error =>
        this.#log.error({ err: error, ...entry }, 'the audit log of the store does not have this'),
      );
  }

  async audit(limit: number, before?: string): Promise<AuditPage> {
    const end = before === undefined ? '+' : `(${before}`;
    const found = await this.#connection.command(client =>
      client.xrevrange(this.#key('audit'), end, '-', 'COUNT', limit + 1),
    );
    return auditPage(
      found.map(([id, [, entry]]) => [id, JSON.parse(entry) as AuditEntry]),
      limit,
    );
  }

  async close(): Promise<void> {
    this.#connection.close();
  }

  #key(name: string): string {
    return this.#connection.prefix + name;
  }
}
