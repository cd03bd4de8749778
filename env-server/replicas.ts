import { type ChildProcess, fork, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { ALLOCATOR } from '../shared/allocator.ts';
import { outputLog } from '../shared/log-text.ts';
import { DECLARATIONS, type EnvironmentSettings, type Settings, variableOf } from './config/settings.ts';
import { type FolderLock, lockFolder } from './persistence/lock.ts';

const PROGRAM = fileURLToPath(new URL('./main.ts', import.meta.url));
const STORE_PROGRAMS = ['valkey-server', 'redis-server'];
const INSTALL =
  'apt-get install valkey-server (Debian 13; on Debian 12 from its backports), brew install valkey, or name a running one with --store';
/** A process that lived less is started again after a delay, which doubles. */
const SHORT_LIFE_MS = 10_000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;
const STORE_START_MS = 10_000;
const STORE_END_MS = 15_000;
const PORT_WAIT_MS = 10_000;
const PORT_RETRY_MS = 200;

/** One of the processes that serve, and the one that took its place. */
interface Replica {
  readonly place: number;
  process: ChildProcess;
  startedAt: number;
  delayMs: number;
}

/** Servers that share one port and one store on this machine: `--replicas`. The kernel spreads connections over them. */
export class Replicas {
  readonly #log: Logger;
  readonly #variables: NodeJS.ProcessEnv;
  readonly #replicas: Replica[] = [];
  readonly #store: LocalStore | undefined;
  #stopping = false;

  private constructor(log: Logger, variables: NodeJS.ProcessEnv, store: LocalStore | undefined) {
    this.#log = log;
    this.#variables = variables;
    this.#store = store;
  }

  /**
   * Starts the store, where none is named, and the servers; resolves when all of them listen.
   * @param port that all of them listen on
   * @throws Error that says what is missing and how to install it
   */
  static async start(settings: Settings & EnvironmentSettings, port: number): Promise<Replicas> {
    const log = outputLog(settings.logLevel);
    const store = settings.store === '' ? await LocalStore.start(settings.data) : undefined;
    const keyFile =
      settings.headerKeyFile || (settings.data === '' ? '' : join(settings.data, 'headers.key'));
    const own: Settings & EnvironmentSettings = {
      ...settings,
      port,
      replicas: 1,
      store: store?.address ?? settings.store,
      data: '',
      headerKeyFile: keyFile,
      durability: settings.data === '' && store ? 'none' : settings.durability,
    };
    const given = Object.keys(DECLARATIONS).map(name => [
      variableOf(name),
      String(own[name as keyof typeof own]),
    ]);
    const variables = { ...ALLOCATOR, ...process.env, ...Object.fromEntries(given), RAGEN_REUSE_PORT: '1' };
    const replicas = new Replicas(log, variables, store);
    try {
      await Promise.all(Array.from({ length: settings.replicas }, (_, place) => replicas.#begin(place)));
    } catch (error) {
      await replicas.#end();
      throw error;
    }
    return replicas;
  }

  /** Lets the servers end in order, then the store; a second time, at once. */
  stop(reason: string): void {
    const isSecond = this.#stopping;
    this.#stopping = true;
    this.#log.info(`${reason}: ending ${this.#replicas.length} servers`);
    for (const { process: child } of this.#replicas) child.kill(isSecond ? 'SIGKILL' : 'SIGTERM');
    if (!isSecond) void this.#end().then(() => process.exit(0));
  }

  async #begin(place: number): Promise<void> {
    const replica: Replica = {
      place,
      process: this.#fork(place),
      startedAt: performance.now(),
      delayMs: FIRST_DELAY_MS,
    };
    this.#replicas.push(replica);
    await listening(replica.process);
    this.#watch(replica);
  }

  #fork(place: number): ChildProcess {
    const child = fork(PROGRAM, [], { env: this.#variables, stdio: ['ignore', 'pipe', 'inherit', 'ipc'] });
    this.#log.info({ replica: place, replica_pid: child.pid }, `replica ${place} starts`);
    return child;
  }

  /** Starts a server again that ended by itself. */
  #watch(replica: Replica): void {
    replica.process.once('exit', (code, signal) => {
      if (this.#stopping) return;
      const lived = performance.now() - replica.startedAt;
      const delayMs = lived < SHORT_LIFE_MS ? replica.delayMs : FIRST_DELAY_MS;
      this.#log.error(
        { pid: replica.process.pid },
        `a server ended with ${signal ?? `exit status ${code}`}; another starts`,
      );
      setTimeout(() => {
        if (this.#stopping) return;
        replica.process = this.#fork(replica.place);
        replica.process.stdout?.resume();
        replica.startedAt = performance.now();
        replica.delayMs = Math.min(2 * delayMs, MAX_DELAY_MS);
        this.#watch(replica);
      }, delayMs);
    });
  }

  async #end(): Promise<void> {
    this.#stopping = true;
    const running = this.#replicas
      .map(({ process: child }) => child)
      .filter(child => child.exitCode === null && child.signalCode === null);
    for (const child of running) child.kill('SIGTERM');
    await Promise.all(running.map(child => once(child, 'exit')));
    await this.#store?.stop();
  }
}

/**
 * A port that is free, for servers that share it.
 * @param waits for one that is taken: those of a killed process end as soon as they notice
 */
export async function reservePort(host: string, port: number, waits: boolean): Promise<number> {
  const probe = createServer();
  for (const begun = performance.now(); ; await delay(PORT_RETRY_MS)) {
    try {
      probe.listen({ host, port });
      await once(probe, 'listening');
      break;
    } catch (error) {
      const isTaken = (error as NodeJS.ErrnoException).code === 'EADDRINUSE';
      if (!isTaken || !waits || performance.now() - begun > PORT_WAIT_MS) throw error;
    }
  }
  const { port: found } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, 'close');
  return found;
}

/** Resolves when a server says that it listens. */
async function listening(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit').then(([code]) => {
    throw new Error(`a server could not be started: it ended with exit status ${code}`);
  });
  const lines = createInterface({ input: child.stdout! });
  const said = (async () => {
    for await (const line of lines) if (line.includes('listening on')) return child.stdout!.resume();
    return ended;
  })();
  ended.catch(() => undefined);
  await Promise.race([said, ended]);
}

/** Starts a program, and ends it when this process has ended, however it ended: its input is closed then. */
const ENDED_WITH_PARENT = ['-c', '"$@" < /dev/null & read -r _; kill "$!"; wait "$!"', 'sh'];

/** A Valkey of this server's own, on a Unix socket that nobody else can open. */
class LocalStore {
  readonly address: string;
  readonly #process: ChildProcess;
  readonly #socketFolder: string;
  readonly #lock: FolderLock | undefined;

  private constructor(
    child: ChildProcess,
    socketFolder: string,
    socket: string,
    lock: FolderLock | undefined,
  ) {
    this.#process = child;
    this.#socketFolder = socketFolder;
    this.#lock = lock;
    this.address = `valkey+unix://${socket}`;
  }

  /**
   * @param data folder that keeps what it holds; empty keeps nothing over its end
   * @throws FolderInUse; Error that says what is missing
   */
  static async start(data: string): Promise<LocalStore> {
    const program = STORE_PROGRAMS.find(name => spawnSync(name, ['--version']).status === 0);
    if (program === undefined)
      throw new Error(`--replicas needs valkey-server, which is not installed: ${INSTALL}`);
    const lock = data === '' ? undefined : lockFolder(data);
    // The path of a socket must be short, so it does not lie in the data folder.
    const socketFolder = mkdtempSync(join(tmpdir(), 'ragen-'));
    const socket = join(socketFolder, 'store');
    const folder = data === '' ? socketFolder : join(data, 'valkey');
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const pidFile = join(folder, 'valkey.pid');
    await endOf(pidFile);
    const keeping = data === '' ? ['no', '--save', ''] : ['yes', '--appendfsync', 'everysec'];
    const own = ['--port', '0', '--unixsocket', socket, '--unixsocketperm', '700', '--pidfile', pidFile];
    const args = [...own, '--dir', folder, '--stream-node-max-bytes', '1024', '--appendonly', ...keeping];
    const child = spawn('sh', [...ENDED_WITH_PARENT, program, ...args], {
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const store = new LocalStore(child, socketFolder, socket, lock);
    const ended = once(child, 'exit').then(() => 'ended');
    const ready = (async () => {
      for await (const line of createInterface({ input: child.stdout }))
        if (line.includes('Ready to accept connections unix')) break;
      child.stdout.resume();
      return 'ready';
    })();
    const state = await Promise.race([
      ended,
      ready,
      delay(STORE_START_MS, 'was not ready in time', { ref: false }),
    ]);
    if (state === 'ready') return store;
    await store.stop();
    throw new Error(`${program} did not start: it ${state}; its files are in ${folder}`);
  }

  async stop(): Promise<void> {
    if (this.#process.exitCode === null && this.#process.signalCode === null) {
      const ended = once(this.#process, 'exit');
      const timer = setTimeout(() => this.#process.kill('SIGKILL'), STORE_END_MS);
      this.#process.stdin!.end();
      await ended;
      clearTimeout(timer);
    }
    rmSync(this.#socketFolder, { recursive: true, force: true });
    this.#lock?.release();
  }
}

/** Waits until the store of a killed server has ended: it may still be writing its files. */
async function endOf(pidFile: string): Promise<void> {
  const begun = performance.now();
  for (;;) {
    try {
      process.kill(Number(readFileSync(pidFile, 'utf8')), 0);
    } catch {
      return;
    }
    if (performance.now() - begun > STORE_END_MS)
      throw new Error(`the store that ${pidFile} names still runs: end it first`);
    await delay(100);
  }
}
