import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { ALLOCATOR } from '../shared/allocator.ts';
import type { LoopHeld } from './floods/loop-watch.ts';

const MAIN = fileURLToPath(new URL('../env-server/main.ts', import.meta.url));
const LOOP_WATCH = new URL('./floods/loop-watch.ts', import.meta.url).href;

/** State that a server reports. */
export interface Vitals {
  readonly sessions: number;
  readonly sockets: number;
  readonly queued: number;
  readonly rssBytes: number;
  /** On the heap and outside of it, in use. */
  readonly liveBytes: number;
  readonly cpuSeconds: number;
}

/** The server as a separate process, on the same port after every restart. */
export class ServerProcess {
  readonly #flags: readonly string[];
  #child: ChildProcess | undefined;
  /** Process ids of the replicas by their places. */
  readonly #replicas = new Map<number, number>();
  origin = '';

  constructor(flags: readonly string[]) {
    this.#flags = flags;
  }

  async start(): Promise<void> {
    const port = this.origin === '' ? '0' : new URL(this.origin).port;
    const program = ['--expose-gc', '--import', LOOP_WATCH, MAIN];
    const child = spawn(
      process.execPath,
      [...program, '--port', port, '--log-level', 'info', ...this.#flags],
      { stdio: ['ignore', 'pipe', 'inherit', 'ipc'], env: { ...ALLOCATOR, ...process.env } },
    );
    this.#child = child;
    const lines = createInterface({ input: child.stdout! });
    await new Promise<void>((resolve, reject) => {
      child.once('exit', code =>
        reject(new Error(`the server ended with status ${code} before it listened`)),
      );
      lines.on('line', line => {
        if (line.startsWith('{')) this.#note(line);
        const match = /listening on (http:\S+)/.exec(line);
        if (!match) return;
        this.origin = match[1];
        resolve();
      });
    });
    child.removeAllListeners('exit');
  }

  #note(line: string): void {
    const { replica, replica_pid: pid } = JSON.parse(line) as { replica?: number; replica_pid?: number };
    if (replica !== undefined && pid !== undefined) this.#replicas.set(replica, pid);
  }

  /** Its process id. */
  get pid(): number {
    const pid = this.#child?.pid;
    if (pid === undefined) throw new Error('the server was not started');
    return pid;
  }

  /** Process ids of what handles requests. */
  get pids(): number[] {
    return this.#replicas.size > 0 ? [...this.#replicas.values()] : [this.pid];
  }

  /** Has its processes collect memory: what they take afterwards is in use. */
  collectMemory(): void {
    for (const pid of this.pids) process.kill(pid, 'SIGUSR2');
  }

  /** Blocking times of its event loop since the last call; of several processes, those of the first. */
  async loopHeld(): Promise<LoopHeld> {
    const child = this.#child!;
    const reported = once(child, 'message');
    child.send('report');
    const [held] = (await reported) as [LoopHeld];
    return held;
  }

  /** Ends it and waits until it has ended. */
  async end(signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }

  /** Sends a signal to the replica in a place; where it ends, the server starts another. */
  signalReplica(place: number, signal: NodeJS.Signals): void {
    const pid = this.#replicas.get(place);
    if (pid === undefined) throw new Error(`there is no replica ${place}`);
    process.kill(pid, signal);
  }

  async vitals(): Promise<Vitals> {
    const text = await this.#metrics();
    const sum = (name: string) => {
      let total = 0;
      for (const [, value] of text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, 'gm'))) {
        total += Number(value);
      }
      return total;
    };
    return {
      sessions: sum('ragen_sessions'),
      sockets: sum('ragen_websockets'),
      queued: sum('ragen_queue_depth'),
      rssBytes: sum('process_resident_memory_bytes'),
      liveBytes: sum('nodejs_heap_size_used_bytes') + sum('nodejs_external_memory_bytes'),
      cpuSeconds: sum('process_cpu_seconds_total'),
    };
  }

  async #metrics(): Promise<string> {
    try {
      return await (await fetch(`${this.origin}/metrics`)).text();
    } catch {
      return '';
    }
  }
}

const TRAINER = fileURLToPath(new URL('../trainer/main.ts', import.meta.url));
const SERVING = /on (http:\/\/\S+)\/v1/;

/** `ragen serve` in its own process, on a free port. */
export interface ServeProcess {
  readonly url: string;
  readonly child: ChildProcess;
}

/** @throws Error when it ends before it serves */
export async function startServe(
  target: string,
  args: readonly string[],
  env: Readonly<Record<string, string>> = {},
): Promise<ServeProcess> {
  const child = spawn(process.execPath, [TRAINER, 'serve', target, '--port', '0', ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  const url = await new Promise<string>((found, reject) => {
    createInterface({ input: child.stdout }).on('line', line => {
      const match = SERVING.exec(line);
      if (match) found(match[1]);
    });
    child.once('exit', code => reject(new Error(`ragen serve ended with status ${code}`)));
  });
  return { url, child };
}
