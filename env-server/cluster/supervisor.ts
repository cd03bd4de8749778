import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Logger } from 'pino';
import { ALLOCATOR } from '../../shared/allocator.ts';
import { outputLog } from '../../shared/log-text.ts';
import type { Settings } from '../config/settings.ts';
import { newRun } from '../persistence/journal/segments.ts';
import { type FolderLock, lockFolder } from '../persistence/lock.ts';
import { checkDatabase } from '../persistence/store.ts';
import { ByteAccounting } from './byte-accounting.ts';
import { Connections } from './connections.ts';
import { BYTES_INTERVAL_MS } from './counts.ts';
import { HeartbeatMonitor } from './heartbeat.ts';
import { LimitAccounting } from './limit-accounting.ts';
import type { ToSupervisor, ToWorker } from './messages.ts';

const PROGRAM = fileURLToPath(new URL('./worker.ts', import.meta.url));
/** A worker that ends sooner is started again with a delay. */
const SHORT_LIFE_MS = 10_000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;
/** One of the places that are always to be filled by a worker. */
interface WorkerSlot {
  readonly index: number;
  worker: ChildProcess | undefined;
  startedAt: number;
  restarts: number;
  delayMs: number;
  ready: boolean;
}

/**
 * Starts the workers of a server, hands them its connections, keeps the counts that they have in common, and starts again
 * what ends. Connections are handed out in turn, as the kernel (`SO_REUSEPORT`) would hand few of them out unevenly;
 * and not by node:cluster, which loses those that it hands to a worker that has just been killed.
 */
export class Supervisor {
  readonly #settings: Settings;
  readonly #log: Logger;
  readonly #folder: string;
  readonly #lock: FolderLock | undefined;
  readonly #run = newRun();
  readonly #limitAccounting: LimitAccounting;
  readonly #byteAccounting = new ByteAccounting();
  readonly #slots: readonly WorkerSlot[];
  readonly #connections = new Connections();
  readonly #heartbeats: HeartbeatMonitor;
  readonly #begun: Promise<void>;
  #begin!: () => void;
  #complete = false;
  #stopping: string | undefined;
  #exitCode = 0;

  constructor(settings: Settings) {
    this.#settings = settings;
    this.#log = outputLog(settings.logLevel);
    this.#limitAccounting = new LimitAccounting(settings);
    this.#heartbeats = new HeartbeatMonitor(settings.workerSilenceSeconds, performance.now());
    this.#lock = settings.data === '' ? undefined : lockFolder(settings.data);
    if (settings.data !== '') checkDatabase(settings.data);
    // Only its owner may look into such a folder, so nobody else may talk to the sockets in it.
    this.#folder = mkdtempSync(join(tmpdir(), 'ragen-'));
    this.#begun = new Promise(resolve => {
      this.#begin = resolve;
    });
    this.#slots = Array.from({ length: settings.workers }, (_, index) => ({
      index,
      worker: undefined,
      startedAt: 0,
      restarts: 0,
      delayMs: FIRST_DELAY_MS,
      ready: false,
    }));
  }

  /**
   * Takes the port.
   * @returns its number
   * @throws Error of the system, e.g. `EADDRINUSE`
   */
  listen(port: number): Promise<number> {
    return this.#connections.listen(this.#settings.host, port);
  }

  /** Starts the workers; resolves when all are there. Ends the process where one cannot be started. */
  start(): Promise<void> {
    for (const slot of this.#slots) this.#fork(slot);
    this.#heartbeats.watch(index => this.#killHung(this.#slots[index]));
    setInterval(() => this.#tellBytes(), BYTES_INTERVAL_MS).unref();
    return this.#begun;
  }

  /** Lets the workers end, in order; a second time, at once. */
  stop(reason: string): void {
    this.#stopping = reason;
    this.#log.info(`${reason}: ending ${this.#slots.length} workers`);
    for (const { worker } of this.#slots) if (worker) send(worker, { kind: 'stop', reason });
    this.#finish();
  }

  #fork(slot: WorkerSlot): void {
    const { index, restarts } = slot;
    const worker = fork(PROGRAM, { env: { ...ALLOCATOR, ...process.env } });
    this.#log.info({ worker: index, worker_pid: worker.pid }, `worker ${index} starts`);
    slot.worker = worker;
    slot.startedAt = performance.now();
    slot.ready = false;
    worker.on('message', (message: ToSupervisor) => this.#take(slot, worker, message));
    worker.on('error', error => this.#log.error({ err: error, worker: index }, 'a worker cannot be told'));
    worker.once('exit', (code, signal) => this.#lose(slot, signal ?? `exit status ${code}`, code));
    send(worker, {
      kind: 'start',
      start: {
        settings: this.#settings,
        placement: { index, count: this.#slots.length },
        folder: this.#folder,
        run: this.#run,
        restarts,
      },
    });
  }

  /** Tells every worker what sessions take in the others, where that has changed. */
  #tellBytes(): void {
    const started = this.#slots.flatMap(({ index, worker }) => (worker ? [[index, worker] as const] : []));
    for (const [index, report] of this.#byteAccounting.reports(started.map(([index]) => index))) {
      send(started.find(([one]) => one === index)![1], { kind: 'bytes', ...report });
    }
  }

  /** It would never end by itself, nor answer anybody. */
  #killHung({ index, worker }: WorkerSlot): void {
    this.#log.error(
      { worker: index },
      `worker ${index} has given no sign of life for ${this.#settings.workerSilenceSeconds} s; it is killed`,
    );
    worker?.kill('SIGKILL');
  }

  #take(slot: WorkerSlot, worker: ChildProcess, message: ToSupervisor): void {
    if (slot.worker === worker) this.#heartbeats.heard(slot.index, performance.now());
    switch (message.kind) {
      case 'alive':
        break;
      case 'ready':
        this.#open(slot, worker);
        break;
      case 'taken':
        this.#connections.taken(message.number);
        break;
      case 'admit': {
        const { number, owner, envId, count } = message;
        const refusal = this.#limitAccounting.admit(slot.index, owner, envId, count);
        send(worker, { kind: 'admitted', number, refusal });
        break;
      }
      case 'changes':
        for (const change of message.changes) this.#limitAccounting.change(slot.index, ...change);
        break;
      case 'bytes':
        this.#byteAccounting.hear(slot.index, message);
        break;
    }
  }

  /** Lets a worker take connections: the first ones when all are ready, so that none is asked for what another has not resumed yet. */
  #open(slot: WorkerSlot, worker: ChildProcess): void {
    slot.ready = true;
    if (this.#complete) {
      this.#admit(slot.index, worker);
      return;
    }
    if (this.#slots.some(({ ready }) => !ready)) return;
    this.#complete = true;
    for (const { index, worker } of this.#slots) if (worker) this.#admit(index, worker);
    this.#begin();
  }

  #admit(index: number, worker: ChildProcess): void {
    this.#connections.add({
      index,
      pass(number, socket) {
        // Whether it has arrived is told by the worker, or by its end.
        if (worker.connected)
          worker.send({ kind: 'connection', number }, socket, { keepOpen: true }, () => undefined);
      },
    });
  }

  #lose(slot: WorkerSlot, how: string, code: number | null): void {
    slot.worker = undefined;
    slot.ready = false;
    this.#connections.remove(slot.index);
    this.#heartbeats.forget(slot.index);
    this.#limitAccounting.forget(slot.index);
    this.#byteAccounting.forget(slot.index);
    if (this.#stopping !== undefined) {
      if (code !== 0) this.#exitCode = 1;
      this.#finish();
      return;
    }
    if (!this.#complete) {
      // What kept it from starting keeps the others, too; it has said so itself.
      this.#exitCode = 1;
      this.stop(`worker ${slot.index} did not start: ${how}`);
      return;
    }
    const lived = performance.now() - slot.startedAt;
    slot.delayMs = lived < SHORT_LIFE_MS ? Math.min(2 * slot.delayMs, MAX_DELAY_MS) : FIRST_DELAY_MS;
    slot.restarts++;
    this.#log.error(
      { worker: slot.index, how, restarts: slot.restarts },
      `worker ${slot.index} ended without being told to (${how}); it is started again`,
    );
    setTimeout(
      () => {
        if (this.#stopping === undefined) this.#fork(slot);
      },
      lived < SHORT_LIFE_MS ? slot.delayMs : 0,
    );
  }

  #finish(): void {
    if (this.#slots.some(({ worker }) => worker)) return;
    this.#connections.close();
    this.#lock?.release();
    rmSync(this.#folder, { recursive: true, force: true });
    process.exit(this.#exitCode);
  }
}

function send(worker: ChildProcess, message: ToWorker): void {
  if (worker.connected) worker.send(message);
}
