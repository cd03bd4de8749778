import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProblemCode } from '../../env-server/problems.ts';
import { Random } from '../../shared/random.ts';
import type { Progress } from '../../trainer/tracking/progress.ts';
import { ServerProcess, type Vitals } from '../server-process.ts';
import { SoakClient, type Surroundings } from './client.ts';
import { keepEvidence, type PlayerHistory, type SoakCounters } from './evidence.ts';
import { type Fault, FLOODS_FROM, FLOODS_SHARE, faultsOf, MEMORY_FROM } from './faults.ts';
import { floods, judged, type ObservedFlood, worstNetP99 } from './floods.ts';
import { gamesFor, registerGames, slowService } from './games.ts';
import {
  type MemoryReport,
  type MemorySample,
  MIN_SAMPLES,
  memoryFault,
  memoryReport,
  peakFault,
} from './memory.ts';
import { transportFor } from './transport.ts';

const MS_PER_S = 1000;
const CHECKPOINT_S = 1;
const MAX_NOTED = 5;
/** Looks at the server in a stage. */
const LOOKS = 50;
/** Time for clients to close their sessions. */
const CLOSING_S = 60;
/** Until processes have collected memory. */
const COLLECTED_MS = 300;
/** Between two looks at the memory during floods. */
const PEAK_LOOK_MS = 250;
/** Until what a flood left behind is cleared away. */
const AFTER_FLOODS_MS = 1500;
/** Until a store with a busy disk has written what it answered. */
const WRITTEN_MS = 2500;
/** A client may get its refused connection slightly later than the server is back. */
const ECHO_MS = 200;

export interface StageSettings {
  readonly replicas: number;
  readonly seconds: number;
  readonly clients: number;
  readonly ttlSeconds: number;
  readonly seed: number;
  /** Limit for the 99th percentile of another client's requests during a flood. */
  readonly limitMs: number;
}

export interface StageReport {
  readonly settings: StageSettings;
  readonly counters: SoakCounters;
  readonly drops: number;
  readonly deaths: number;
  /** Seconds played, without those in which the server was away. */
  readonly seconds: number;
  /** Memory before and after the floods. */
  readonly memory: MemoryReport | undefined;
  /** Effects of each flood on another client, and the peak memory; undefined without floods. */
  readonly floods: { readonly seen: readonly ObservedFlood[]; readonly peakBytes: number } | undefined;
  /** Sessions, sockets and waiting operations at the end; undefined where it was cut short. */
  readonly leaked: number | undefined;
  readonly violations: readonly string[];
  readonly cut: boolean;
}

/**
 * Plays with all faults on a separate server and reports every violation.
 * @param signal ends it early, with what was found so far
 */
export async function runStage(
  settings: StageSettings,
  progress: Progress,
  signal: AbortSignal,
): Promise<StageReport> {
  const folder = mkdtempSync(join(tmpdir(), 'ragen-soak-'));
  const service = await slowService(settings.seed);
  const server = new ServerProcess(flagsOf(settings, folder));
  try {
    await server.start();
    await registerGames(server.origin, service.url);
    return await new Stage(settings, server, folder, progress).run(signal);
  } finally {
    await server.end('SIGTERM');
    service.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function flagsOf({ replicas, ttlSeconds, clients }: StageSettings, folder: string): string[] {
  return [
    ...(replicas === 1 ? [] : ['--replicas', String(replicas)]),
    ...['--data', folder, '--checkpoint-seconds', String(CHECKPOINT_S)],
    ...['--idle-ttl-seconds', String(ttlSeconds), '--gone-seconds', '5', '--grace-seconds', '5'],
    ...['--max-sessions', String(8 * clients), '--remote-networks', '127.0.0.1/32'],
  ];
}

class Stage {
  readonly #settings: StageSettings;
  readonly #server: ServerProcess;
  /** Data of the server. */
  readonly #folder: string;
  readonly #progress: Progress;
  readonly #counters: SoakCounters;
  readonly #violations: string[] = [];
  readonly #memoryBefore: MemorySample[] = [];
  readonly #memoryAfter: MemorySample[] = [];
  readonly #name: string;
  #floods: StageReport['floods'];
  #drops = 0;
  #deaths = 0;
  #away = false;
  #faults = 0;
  #awayMs = 0;
  #ending = false;
  #over = false;

  constructor(settings: StageSettings, server: ServerProcess, folder: string, progress: Progress) {
    this.#settings = settings;
    this.#server = server;
    this.#folder = folder;
    this.#progress = progress;
    this.#name = settings.replicas === 1 ? '1 process' : `${settings.replicas} replicas`;
    this.#counters = {
      steps: 0,
      retries: 0,
      expired: 0,
      verified: 0,
      replayed: 0,
      kills: 0,
      problems: new Map<ProblemCode, number>(),
      ttlMs: settings.ttlSeconds * MS_PER_S,
    };
  }

  async run(signal: AbortSignal): Promise<StageReport> {
    const begin = performance.now();
    // While the server is away the clock of the stage stands still.
    const elapsed = () => (performance.now() - begin - this.#awayMs) / MS_PER_S;
    const playing = this.#play();
    await this.#disturb(elapsed, signal);
    const cut = signal.aborted;
    const seconds = elapsed();
    await this.#close(playing, cut);
    const left = cut ? undefined : await this.#left();
    const leaked = left && left.sessions + left.sockets + left.queued;
    if (left && leaked) {
      const { sessions, sockets, queued } = left;
      this.#violate(
        `${sessions} sessions, ${sockets} sockets and ${queued} operations are left ${this.#settings.ttlSeconds} s after the last use`,
      );
    }
    // Of several replicas a page of metrics shows one, another each time.
    const memory =
      this.#settings.replicas === 1 ? memoryReport(this.#memoryBefore, this.#memoryAfter) : undefined;
    const fault = memory && memoryFault(memory, this.#settings.replicas);
    if (fault !== undefined) this.#violate(fault);
    return {
      settings: this.#settings,
      counters: this.#counters,
      drops: this.#drops,
      deaths: this.#deaths,
      seconds,
      memory,
      floods: this.#floods,
      leaked,
      violations: this.#violations,
      cut,
    };
  }

  /** Some are shown at once, with what explains them; all of them are counted. */
  #violate(what: string, history?: PlayerHistory): void {
    this.#violations.push(what);
    if (this.#violations.length > MAX_NOTED) return;
    this.#progress.note(`${this.#name}: ${what}`);
    if (!history) return;
    const seen = { ...history, lines: [...history.lines] };
    setTimeout(() => {
      this.#progress.note(`its requests and records: ${keepEvidence(what, seen, this.#folder)}`);
    }, WRITTEN_MS);
  }

  #play(): Promise<unknown> {
    const { clients, seed } = this.#settings;
    const surroundings: Surroundings = {
      counters: this.#counters,
      fault: () => ({ number: this.#faults, away: this.#away }),
      violate: (what, history) => this.#violate(what, history),
      onDrop: () => this.#drops++,
      onDeath: () => this.#deaths++,
    };
    return Promise.all(
      Array.from({ length: clients }, (_, i) => {
        const random = Random.fromSeed(seed * clients + i);
        const transport = transportFor(i, this.#server.origin);
        return new SoakClient(`c${i}`, transport, gamesFor(i), random, surroundings).run(
          () => this.#ending,
          () => this.#over,
        );
      }),
    );
  }

  /** Looks after the server while the clients play, and lets the faults happen: in their time, or late where everything is slow. */
  async #disturb(elapsed: () => number, signal: AbortSignal): Promise<void> {
    const { seconds, replicas } = this.#settings;
    const total = Math.ceil(seconds);
    const faults = faultsOf(replicas);
    const all = faults.length;
    this.#progress.begin(this.#name, total, 0);
    while ((elapsed() < seconds || faults.length > 0) && !signal.aborted) {
      const share = elapsed() / seconds;
      // Where floods take long on a busy machine, the first fault waits for the memory to be seen.
      const isSeen = this.#memoryAfter.length >= MIN_SAMPLES;
      if (isSeen && faults[0] && share >= faults[0].at) await this.#happen(faults.shift()!);
      else if (share >= FLOODS_FROM && this.#memoryBefore.length >= MIN_SAMPLES && !this.#floods)
        await this.#flood(signal);
      else if (share >= MEMORY_FROM && faults.length === all) {
        this.#server.collectMemory();
        await delay(COLLECTED_MS);
        (this.#floods ? this.#memoryAfter : this.#memoryBefore).push(await this.#server.vitals());
      }
      this.#progress.update(Math.min(Math.round(elapsed()), total), {
        steps: String(this.#counters.steps),
        verified: String(this.#counters.verified),
        violations: String(this.#violations.length),
      });
      await delay((seconds * MS_PER_S) / LOOKS);
    }
    this.#progress.end();
  }

  /** One client floods the server while all others play on; their connections hold. */
  async #flood(signal: AbortSignal): Promise<void> {
    const { seconds, limitMs } = this.#settings;
    let peakBytes = 0;
    const over = new AbortController();
    const watching = (async () => {
      while (!over.signal.aborted) {
        peakBytes = Math.max(peakBytes, (await this.#server.vitals()).rssBytes);
        await delay(PEAK_LOOK_MS);
      }
    })();
    const seen = await floods(this.#server, seconds * FLOODS_SHARE, signal, name =>
      this.#progress.note(`${this.#name}: flood: ${name}`),
    );
    over.abort();
    await watching;
    this.#floods = { seen, peakBytes };
    const fault = this.#settings.replicas === 1 ? peakFault(peakBytes, 1) : undefined;
    if (fault !== undefined) this.#violate(fault);
    for (const flood of seen) {
      const verdict = judged(flood, limitMs);
      const missed = `${flood.name}: another client's p99 was ${worstNetP99(flood).toFixed(1)} ms without waiting for a processor, above ${limitMs}`;
      if (verdict === 'slow') this.#violate(missed);
      if (verdict === 'busy')
        this.#progress.note(
          `${this.#name}: no violation, as other programs kept the machine busy (load ${flood.load.toFixed(0)}): ${missed}`,
        );
    }
    await delay(AFTER_FLOODS_MS);
  }

  async #happen({ name, kills, run }: Fault): Promise<void> {
    this.#progress.note(`${this.#name}: ${name}`);
    const kill = () => {
      if (kills) this.#counters.kills++;
    };
    this.#away = true;
    this.#faults++;
    const begin = performance.now();
    kill();
    await run(this.#server);
    // Clients that saw the old one end now use the new one.
    kill();
    await delay(ECHO_MS);
    this.#awayMs += performance.now() - begin;
    this.#away = false;
    this.#faults++;
  }

  async #close(playing: Promise<unknown>, cut: boolean): Promise<void> {
    this.#ending = true;
    if (!cut) {
      const late = await Promise.race([
        playing.then(() => false),
        delay(CLOSING_S * MS_PER_S, true, { ref: false }),
      ]);
      if (late) this.#violate(`clients could not close their sessions within ${CLOSING_S} s`);
    }
    this.#over = true;
    await playing;
  }

  /** State of the server once everything must have expired. */
  async #left(): Promise<Vitals> {
    const end = performance.now() + (2 * this.#settings.ttlSeconds + 10) * MS_PER_S;
    for (;;) {
      const left = await this.#server.vitals();
      const { sessions, sockets, queued } = left;
      if (sessions + sockets + queued === 0 || performance.now() > end) return left;
      await delay(MS_PER_S / 4);
    }
  }
}
