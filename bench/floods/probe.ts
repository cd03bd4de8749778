import { once } from 'node:events';
import { closeSync, openSync, readSync } from 'node:fs';
import { Agent, get } from 'node:http';
import { setTimeout as delay } from 'node:timers/promises';
import { WebSocket } from 'ws';

/** Milliseconds that one kind of request took. */
export interface Latencies {
  readonly count: number;
  readonly p50: number;
  readonly p99: number;
  readonly most: number;
  /**
   * The 99th percentile without the time for which the server or this client waited for a processor, or a hypervisor gave
   * theirs to others.
   */
  readonly netP99: number;
  /** The 99th percentile of the time for which this client waited for one. */
  readonly ownP99: number;
}

/** Time of one request, in milliseconds. */
interface Taken {
  readonly ms: number;
  readonly serverWaited: number;
  readonly ownWaited: number;
  readonly stolen: number;
}

type Answer =
  | { readonly ok: true; readonly result: { readonly session_id: string } }
  | { readonly ok: false; readonly error: { readonly retryable: boolean } };

/**
 * A well-behaved client: sends a request now and then, one at a time, and records how long each takes. On a busy machine
 * it subtracts the time in which client and server waited for a processor.
 */
export class Probe {
  readonly #origin: string;
  readonly #pauseMs: number;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #stopped = new AbortController();
  readonly #lives: Taken[] = [];
  readonly #steps: Taken[] = [];
  readonly #server: readonly ProcessorWait[];
  readonly #own = new ProcessorWait('self');
  readonly #stolen = new StolenTime();
  #running: Promise<unknown> = Promise.resolve();

  /** @param pids processes of the server: the one that waited most for a processor counts */
  constructor(origin: string, pids: readonly number[], pauseMs = 20) {
    this.#origin = origin;
    this.#server = pids.map(pid => new ProcessorWait(pid));
    this.#pauseMs = pauseMs;
  }

  /** Opens what it asks with. */
  async start(): Promise<void> {
    const socket = new WebSocket(`${this.#origin.replace('http', 'ws')}/v1/ws`);
    await once(socket, 'open');
    const ask = async (frame: object): Promise<Answer> => {
      socket.send(JSON.stringify({ id: 1, ...frame }));
      const [reply] = (await once(socket, 'message')) as [Buffer];
      return JSON.parse(reply.toString());
    };
    const config = { p_frozen: 1, max_steps: 10_000 };
    let opened = await ask({ op: 'create', env_id: 'FrozenLake-v0', config });
    for (; !opened.ok && opened.error.retryable; await delay(this.#pauseMs)) {
      opened = await ask({ op: 'create', env_id: 'FrozenLake-v0', config });
    }
    if (!opened.ok) throw new Error(`the probe got no session: ${JSON.stringify(opened.error)}`);
    const { session_id } = opened.result;
    this.#running = Promise.all([
      this.#repeat(this.#lives, () => this.#live()),
      this.#repeat(this.#steps, () => ask({ op: 'step', session_id, action: 1 })),
    ]).finally(() => socket.terminate());
  }

  /** Stops, and says how long `GET /livez` and a step over a WebSocket took since the last {@link forget}. */
  async stop(): Promise<{ livez: Latencies; step: Latencies }> {
    this.#stopped.abort();
    await this.#running;
    this.#agent.destroy();
    for (const wait of this.#server) wait.close();
    this.#own.close();
    this.#stolen.close();
    return { livez: summary(this.#lives), step: summary(this.#steps) };
  }

  forget(): void {
    this.#lives.length = 0;
    this.#steps.length = 0;
  }

  async #repeat(taken: Taken[], ask: () => Promise<unknown>): Promise<void> {
    while (!this.#stopped.signal.aborted) {
      const serverWaited = this.#server.map(({ ms }) => ms);
      const ownWaited = this.#own.ms;
      const stolen = this.#stolen.ms;
      const begin = performance.now();
      await ask();
      taken.push({
        ms: performance.now() - begin,
        serverWaited: Math.max(0, ...this.#server.map(({ ms }, i) => ms - serverWaited[i])),
        ownWaited: this.#own.ms - ownWaited,
        stolen: this.#stolen.since(stolen),
      });
      await delay(this.#pauseMs);
    }
  }

  async #live(): Promise<void> {
    const request = get(`${this.#origin}/livez`, { agent: this.#agent });
    const [response] = await once(request, 'response');
    response.resume();
    await once(response, 'end');
    if (response.statusCode !== 200) throw new Error(`/livez answered ${response.statusCode}`);
  }
}

function summary(taken: readonly Taken[]): Latencies {
  const at = (share: number, of: (one: Taken) => number) => {
    const sorted = taken.map(of).sort((a, b) => a - b);
    return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
  };
  const all = ({ ms }: Taken) => ms;
  return {
    count: taken.length,
    p50: at(0.5, all),
    p99: at(0.99, all),
    most: at(1, all),
    netP99: at(0.99, ({ ms, serverWaited, ownWaited, stolen }) =>
      Math.max(0, ms - serverWaited - ownWaited - stolen),
    ),
    ownP99: at(0.99, ({ ownWaited }) => ownWaited),
  };
}

const NANOSECONDS_PER_MS = 1e6;
/** Tick of the kernel's count of stolen time: `USER_HZ` is 100 on x86 and ARM. */
const MS_PER_TICK = 10;
const LONGEST = 128;
/** Bytes of `/proc/stat` that hold the lines of up to about a hundred processors. */
const LONGEST_STAT = 16_384;

/** Time for which the main thread of a process has waited for a processor, in milliseconds (Linux; 0 elsewhere). */
export class ProcessorWait {
  readonly #file: number | undefined;
  readonly #buffer = Buffer.alloc(LONGEST);

  /** @param pid or `self` */
  constructor(pid: number | 'self') {
    this.#file = process.platform === 'linux' ? openSync(`/proc/${pid}/schedstat`, 'r') : undefined;
  }

  get ms(): number {
    if (this.#file === undefined) return 0;
    const length = readSync(this.#file, this.#buffer, 0, LONGEST, 0);
    const [, waited] = this.#buffer.toString('latin1', 0, length).split(' ');
    return Number(waited) / NANOSECONDS_PER_MS;
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
  }
}

/**
 * How long a hypervisor ran others on this machine's processors while they had work, in milliseconds (Linux; 0 elsewhere).
 * A request runs on one of them at a time, so the most of any one is what it may have lost.
 */
class StolenTime {
  readonly #file: number | undefined;
  readonly #buffer = Buffer.alloc(LONGEST_STAT);

  constructor() {
    this.#file = process.platform === 'linux' ? openSync('/proc/stat', 'r') : undefined;
  }

  /** Stolen time of each processor since the machine started. */
  get ms(): readonly number[] {
    if (this.#file === undefined) return [];
    const length = readSync(this.#file, this.#buffer, 0, LONGEST_STAT, 0);
    return stolenOf(this.#buffer.toString('latin1', 0, length));
  }

  /** The most that one processor lost since an earlier reading. */
  since(earlier: readonly number[]): number {
    return Math.max(0, ...this.ms.map((ms, i) => ms - (earlier[i] ?? ms)));
  }

  close(): void {
    if (this.#file !== undefined) closeSync(this.#file);
  }
}

/**
 * What each processor lost to others of its host.
 * @param stat text of `/proc/stat`
 * @returns milliseconds since the machine started
 */
export function stolenOf(stat: string): number[] {
  // cpuN user nice system idle iowait irq softirq steal …
  return [...stat.matchAll(/^cpu\d+((?: \d+)+)/gm)].map(([, counts]) => {
    const ticks = counts.trim().split(' ').map(Number);
    return (ticks[7] ?? 0) * MS_PER_TICK;
  });
}
