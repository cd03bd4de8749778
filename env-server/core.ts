import { join } from 'node:path';
import type { Logger } from 'pino';
import type { Json } from '../shared/json.ts';
import type { Settings } from './config/settings.ts';
import { Registrations } from './custom/registrations/registrations.ts';
import { NetworkGuard, RemoteNetwork } from './custom/remote/network.ts';
import { HeaderSecrets } from './custom/remote/secrets.ts';
import { ScriptPool } from './custom/script/pool.ts';
import { createRegistry, type Registry } from './environments/registry.ts';
import { createdReply, openedReply, sessionView } from './operations/sessions/views.ts';
import type { JournalDisk } from './persistence/journal/journal-files.ts';
import { type FolderLock, lockFolder } from './persistence/lock.ts';
import { PersistenceHealth } from './persistence/persistence-health.ts';
import { checkDatabase, openStore, type Store } from './persistence/store.ts';
import { VariantCatalog } from './sessions/episodes/variant.ts';
import type { ServerClock } from './sessions/limits/server-clock.ts';
import { SessionManager } from './sessions/manager.ts';
import type { Session } from './sessions/session.ts';
import { EmbeddedSessions } from './sessions/storage/embedded-sessions.ts';
import { SharedSessions } from './sessions/storage/shared-sessions.ts';
import { Dispatcher } from './stages/dispatcher.ts';
import type { SharedEnvironments } from './store/shared-environments.ts';
import type { ValkeySessionStore } from './store/valkey-session-store.ts';
import type { OpenTelemetry } from './transports/monitoring/open-telemetry.ts';

/** Parts that tests replace. */
export interface CoreParts {
  readonly registry?: Registry;
  /** Clock by which sessions expire. */
  readonly clock?: ServerClock;
  /** Replaces the store in `data`, with its health. */
  readonly storage?: { readonly store: Store; readonly health: PersistenceHealth };
  /** Disk that the journal writes to. */
  readonly journalDisk?: JournalDisk;
  /** The store that several servers share, in place of one in `data`. */
  readonly shared?: { readonly sessions: ValkeySessionStore; readonly environments: SharedEnvironments };
}

/** File next to the database. */
const HEADER_KEY_FILE = 'headers.key';
const BYTES_PER_MB = 1024 * 1024;

/** State and services of a server, without the transports that clients use. */
export class ServerCore {
  readonly sessions: SessionManager;
  readonly registrations: Registrations;
  readonly dispatcher: Dispatcher;
  readonly health: PersistenceHealth;
  readonly store: Store;
  readonly #embedded: EmbeddedSessions | undefined;
  readonly #lock: FolderLock | undefined;
  readonly #scripts: ScriptPool;
  readonly #network: RemoteNetwork;
  readonly #tracing: OpenTelemetry | undefined;
  readonly #shared: SharedSessions | undefined;

  /** Opens the store and starts what environments need; {@link start} begins with the sessions. */
  constructor(settings: Settings, parts: CoreParts, log: Logger, tracing: OpenTelemetry | undefined) {
    this.#tracing = tracing;
    const { replica } = parts.shared?.sessions.connection ?? {};
    this.sessions = new SessionManager(settings, parts.clock, replica);
    this.health = parts.storage?.health ?? new PersistenceHealth(log);
    const registry = parts.registry ?? createRegistry();
    const catalog = new VariantCatalog(registry);
    const folder = settings.data === '' ? undefined : settings.data;
    // A server that fails to get the lock must not touch these.
    this.#lock = folder === undefined ? undefined : lockFolder(folder);
    this.store =
      parts.shared?.environments ?? parts.storage?.store ?? openChecked(folder, this.health, this.#lock);
    this.#scripts = scriptPool(settings);
    this.#network = remoteNetwork(settings, log);
    const registrations = new Registrations({
      context: { registry, scripts: this.#scripts, network: this.#network },
      store: this.store,
      log,
      limits: settings,
      sessionsOf: envId => parts.shared?.sessions.count(envId) ?? catalog.sessionsOf(envId),
      announce: parts.shared && (() => this.#refreshEnvironments(parts.shared!.environments)),
      now: this.sessions.clock.wall,
    });
    this.registrations = registrations;
    registrations.start();
    const kept = {
      sessions: this.sessions,
      catalog,
      log,
      editionOf: (envId: string) => registrations.edition(envId),
      viewOf: (session: Session) => sessionView(session) as unknown as Json,
      openedReplyOf: (opened: readonly Session[], isCopies: boolean) =>
        isCopies ? openedReply(this.sessions, opened, false) : createdReply(this.sessions, opened),
    };
    if (parts.shared) {
      const { sessions: store, environments } = parts.shared;
      const refreshEnvironments = () => this.#refreshEnvironments(environments);
      this.#shared = new SharedSessions({ ...kept, store, limits: settings, refreshEnvironments });
      this.sessions.recorder = this.#shared;
    } else if (settings.data !== '') {
      this.#embedded = new EmbeddedSessions(settings, {
        ...kept,
        health: this.health,
        disk: parts.journalDisk,
      });
      this.sessions.recorder = this.#embedded;
    }
    this.dispatcher = new Dispatcher({
      sessions: this.sessions,
      catalog,
      registrations,
      stepTimeoutMs: settings.stepTimeoutMs,
      tracing,
      shared: this.#shared,
    });
  }

  async #refreshEnvironments(environments: SharedEnvironments): Promise<void> {
    if (await environments.refresh()) this.registrations.refresh();
  }

  /** Resumes the sessions of an earlier process, and starts to expire and store sessions. */
  async start(): Promise<void> {
    await this.#embedded?.start();
    this.#shared?.begin();
    this.sessions.start();
  }

  /** Stores the sessions as they are, and stops storing. */
  keepSessions(): void {
    this.#embedded?.finish();
    this.#shared?.end();
  }

  /**
   * Stops accepting new work, finishes work in progress, and stores the sessions.
   * @returns the number of unfinished operations
   */
  async settle(graceMs: number): Promise<number> {
    this.#shared?.suspend();
    const unfinished = await this.sessions.suspend(graceMs);
    await this.#shared?.settle();
    this.keepSessions();
    return unfinished;
  }

  /** Stores and ends the sessions and releases everything that was opened. */
  async close(): Promise<void> {
    this.keepSessions();
    await this.#embedded?.close();
    this.sessions.stop();
    await this.store.close();
    this.#lock?.release();
    await Promise.all([this.#scripts.close(), this.#network.close(), this.#tracing?.close()]);
  }
}

function scriptPool(settings: Settings): ScriptPool {
  return new ScriptPool({
    workers: settings.scriptWorkers,
    timeMs: settings.scriptTimeMs,
    memoryBytes: settings.scriptMemoryMb * BYTES_PER_MB,
    outputLength: settings.scriptOutputLength,
    valueBytes: settings.answerValueBytes,
  });
}

function remoteNetwork(settings: Settings, log: Logger): RemoteNetwork {
  const guard = new NetworkGuard(settings, undefined, refusal =>
    log.info(refusal, `${refusal.host} may not be reached: its address lies in ${refusal.network}`),
  );
  const secrets = new HeaderSecrets({ ...settings, keyFile: headerKeyFile(settings) });
  return new RemoteNetwork(guard, secrets, settings.answerValueBytes);
}

/** Opened under the lock of the folder. */
function openChecked(
  folder: string | undefined,
  health: PersistenceHealth,
  lock: FolderLock | undefined,
): Store {
  try {
    if (lock && folder !== undefined) checkDatabase(folder);
    return openStore(folder, health);
  } catch (error) {
    lock?.release();
    throw error;
  }
}

/** Path of the key that encrypts headers; undefined where nothing is stored. */
function headerKeyFile({ headerKeyFile, data }: Settings): string | undefined {
  if (headerKeyFile !== '') return headerKeyFile;
  return data === '' ? undefined : join(data, HEADER_KEY_FILE);
}
