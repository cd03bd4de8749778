import { join } from 'node:path';
import type { Logger } from 'pino';
import type { Json } from '../shared/json.ts';
import type { ClusterMembership } from './cluster/membership.ts';
import type { WorkerChannels } from './cluster/worker-channels.ts';
import type { Settings } from './config/settings.ts';
import { Registrations } from './custom/registrations/registrations.ts';
import { NetworkGuard } from './custom/remote/guard.ts';
import { RemoteNetwork } from './custom/remote/network.ts';
import { HeaderSecrets } from './custom/remote/secrets.ts';
import { ScriptPool } from './custom/script/pool.ts';
import { createRegistry, type Registry } from './environments/registry.ts';
import { Dispatcher } from './operations/dispatch/dispatcher.ts';
import { announceChange, countOpenSessions } from './operations/dispatch/sibling-workers.ts';
import { sessionView } from './operations/sessions/views.ts';
import { type JournalFiles, newRun } from './persistence/journal/segments.ts';
import { type FolderLock, lockFolder } from './persistence/lock.ts';
import { PersistenceHealth } from './persistence/persistence-health.ts';
import { checkDatabase, openStore, type Store } from './persistence/store.ts';
import type { ServerClock } from './sessions/limits/server-clock.ts';
import { SessionManager } from './sessions/manager.ts';
import { ownershipOf } from './sessions/placement.ts';
import { openSessionPersistence, type SessionPersistence } from './sessions/storage/session-persistence.ts';
import { VariantCatalog } from './sessions/variant-catalog.ts';
import type { OpenTelemetry } from './transports/monitoring/tracing/open-telemetry.ts';

/** Parts that tests replace. */
export interface CoreParts {
  readonly registry?: Registry;
  /** Milliseconds since the epoch. */
  readonly now?: () => number;
  /** The time by which sessions expire; that of `now` where it is given. */
  readonly clock?: ServerClock;
  /** Kept instead of one in `data`, whose health goes with it. */
  readonly storage?: { readonly store: Store; readonly health: PersistenceHealth };
  /** What the journal writes to. */
  readonly journalFiles?: JournalFiles;
  /** For one of several processes that serve together. */
  readonly membership?: ClusterMembership;
}

/** In the folder of the database. */
const HEADER_KEY_FILE = 'headers.key';
const BYTES_PER_MB = 1024 * 1024;

/** What a server keeps and runs, without the transports that clients reach it by. */
export class ServerCore {
  readonly sessions: SessionManager;
  readonly registrations: Registrations;
  readonly dispatcher: Dispatcher;
  readonly health: PersistenceHealth;
  readonly store: Store;
  readonly #persistence: SessionPersistence | undefined;
  readonly #lock: FolderLock | undefined;
  readonly #scripts: ScriptPool;
  readonly #network: RemoteNetwork;
  readonly #tracing: OpenTelemetry | undefined;
  readonly #siblings: WorkerChannels | undefined;

  /** Opens the store and starts what environments need; {@link start} begins with the sessions. */
  constructor(settings: Settings, parts: CoreParts, log: Logger, tracing: OpenTelemetry | undefined) {
    const { membership } = parts;
    const siblings = membership?.channels;
    this.#siblings = siblings;
    this.#tracing = tracing;
    this.sessions = new SessionManager(
      settings,
      parts.clock ?? parts.now,
      membership && { placement: membership.channels.placement, counts: membership.counts },
    );
    if (membership && membership.restarts > 0) this.sessions.recallCrash();
    this.health = parts.storage?.health ?? new PersistenceHealth(log);
    const registry = parts.registry ?? createRegistry();
    const catalog = new VariantCatalog(registry);
    const folder = settings.data === '' ? membership?.folder : settings.data;
    // What a refused server must not touch is opened under the lock.
    this.#lock = membership || settings.data === '' ? undefined : lockFolder(settings.data);
    this.store = parts.storage?.store ?? openChecked(folder, settings.data === '', this.health, this.#lock);
    this.#scripts = scriptPool(settings);
    this.#network = remoteNetwork(settings, membership?.folder, log);
    const registrations = new Registrations({
      context: { registry, scripts: this.#scripts, network: this.#network },
      store: this.store,
      log,
      limits: settings,
      sessionsOf: envId => countOpenSessions(catalog.sessionsOf(envId), envId, siblings),
      announce: siblings && (() => announceChange(siblings)),
      now: parts.now ?? Date.now,
    });
    this.registrations = registrations;
    registrations.start();
    this.#persistence = openSessionPersistence(settings, {
      sessions: this.sessions,
      catalog,
      log,
      editionOf: envId => registrations.edition(envId),
      viewOf: session => sessionView(session) as unknown as Json,
      health: this.health,
      writer: { run: membership?.run ?? newRun(), ...(siblings?.placement ?? { index: 0, count: 1 }) },
      share: siblings && ownershipOf(siblings.placement),
      files: parts.journalFiles,
    });
    this.dispatcher = new Dispatcher({
      sessions: this.sessions,
      catalog,
      registrations,
      stepTimeoutMs: settings.stepTimeoutMs,
      tracing,
      siblings,
    });
  }

  /** Takes up the sessions of an earlier process, and begins to expire and store sessions. */
  start(): void {
    this.#persistence?.start();
    this.sessions.start();
  }

  /** Stores the sessions as they stand, and no more after that. */
  keepSessions(): void {
    this.#persistence?.finish();
  }

  /**
   * Refuses what is new, lets what is under way finish, and stores the sessions.
   * @returns how many operations were not done after so long
   */
  async settle(graceMs: number): Promise<number> {
    const unfinished = await Promise.all([
      this.sessions.suspend(graceMs),
      this.#siblings?.settle(graceMs) ?? 0,
    ]);
    this.keepSessions();
    return unfinished[0] + unfinished[1];
  }

  /** Stores and ends the sessions and gives back what was opened. */
  async close(): Promise<void> {
    this.keepSessions();
    this.sessions.stop();
    this.registrations.stop();
    await this.store.close();
    this.#lock?.release();
    await Promise.all([
      this.#scripts.close(),
      this.#network.close(),
      this.#tracing?.close(),
      this.#siblings?.close(),
    ]);
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

function remoteNetwork(settings: Settings, commonFolder: string | undefined, log: Logger): RemoteNetwork {
  const guard = new NetworkGuard(settings, undefined, refusal =>
    log.info(refusal, `${refusal.host} may not be reached: its address lies in ${refusal.network}`),
  );
  const secrets = new HeaderSecrets({ ...settings, keyFile: headerKeyFile(settings, commonFolder) });
  return new RemoteNetwork(guard, secrets, settings.answerValueBytes);
}

/** Under the lock of the folder, or that of the supervisor, who has checked the database. */
function openChecked(
  folder: string | undefined,
  passing: boolean,
  health: PersistenceHealth,
  lock: FolderLock | undefined,
): Store {
  try {
    if (lock && folder !== undefined) checkDatabase(folder);
    return openStore(folder, passing, health);
  } catch (error) {
    lock?.release();
    throw error;
  }
}

/** Where the key for headers is kept; undefined where nothing is. */
function headerKeyFile(settings: Settings, commonFolder: string | undefined): string | undefined {
  if (settings.headerKeyFile !== '') return settings.headerKeyFile;
  const folder = settings.data === '' ? commonFolder : settings.data;
  return folder === undefined ? undefined : join(folder, HEADER_KEY_FILE);
}
