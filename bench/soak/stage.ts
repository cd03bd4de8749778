import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ProblemCode } from '../../env-server/problems.ts';
import { Random } from '../../shared/random.ts';
import type { Progress } from '../../trainer/tracking/progress.ts';
import type { FloodReport } from '../floods/flood.ts';
import { ServerProcess } from '../server-process.ts';
import { SoakClient, type Surroundings } from './client.ts';
import { doorFor } from './door.ts';
import { type Fault, faultsOf, floods, MEMORY_FROM, MEMORY_TO } from './faults.ts';
import { gamesFor, registerGames } from './games.ts';
import type { Ledger } from './ledger.ts';
import { grewBy, warmAndLater } from './memory.ts';
import { slowService } from './service.ts';

const MS_PER_S = 1000;
/** What sessions may lack after a kill: the time between checkpoints and what a busy machine adds to it. */
const CHECKPOINT_S = 1;
const CHECKPOINT_LATE_S = 10;
const MOST_NOTED = 5;
/** What a flood may add to the 99th percentile of another client's requests. */
const MOST_MS = 50;
/** Looks at the server in a stage. */
const LOOKS = 50;
/** How long clients get to close what they have. */
const CLOSING_S = 60;
/** Who was refused a connection may hear of it a little later than the server is back. */
const ECHO_MS = 200;

export interface StageSettings {
  readonly workers: number;
  readonly seconds: number;
  readonly clients: number;
  readonly ttlSeconds: number;
  readonly seed: number;
}

export interface StageReport {
  readonly settings: StageSettings;
  readonly ledger: Omit<Ledger, 'mayForget'>;
  readonly drops: number;
  readonly deaths: number;
  /** Seconds played, without those in which the server was away. */
  readonly seconds: number;
  /** Memory of all processes when warm, and at the end of the undisturbed time. */
  readonly rssBytes: readonly [warm: number, later: number] | undefined;
  /** Sessions, sockets and waiting operations at the end; undefined where it was cut short. */
  readonly leaked: number | undefined;
  /** What another client noticed of each flood; the first is without one. */
  readonly floods: readonly FloodReport[];
  readonly violations: readonly string[];
  readonly cut: boolean;
}

/**
 * Plays on a server of its own with all faults, and says what was not as it must be.
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
    return await new Stage(settings, server, progress).run(signal);
  } finally {
    await server.end('SIGTERM');
    service.close();
    rmSync(folder, { recursive: true, force: true });
  }
}

function flagsOf({ workers, ttlSeconds, clients }: StageSettings, folder: string): string[] {
  return [
    ...['--workers', String(workers), '--data', folder, '--checkpoint-seconds', String(CHECKPOINT_S)],
    ...['--idle-ttl-seconds', String(ttlSeconds), '--gone-seconds', '5', '--grace-seconds', '5'],
    ...['--max-sessions', String(8 * clients), '--remote-networks', '127.0.0.1/32'],
  ];
}

class Stage {
  readonly #settings: StageSettings;
  readonly #server: ServerProcess;
  readonly #progress: Progress;
  readonly #ledger: Ledger;
  readonly #violations: string[] = [];
  readonly #kills: number[] = [];
  readonly #rss: number[] = [];
  readonly #floods: FloodReport[] = [];
  readonly #name: string;
  #drops = 0;
  #deaths = 0;
  #away = false;
  #faults = 0;
  #awayMs = 0;
  #ending = false;
  #over = false;

  constructor(settings: StageSettings, server: ServerProcess, progress: Progress) {
    this.#settings = settings;
    this.#server = server;
    this.#progress = progress;
    this.#name = settings.workers === 1 ? '1 process' : `${settings.workers} workers`;
    const most = (CHECKPOINT_S + CHECKPOINT_LATE_S) * MS_PER_S;
    this.#ledger = {
      steps: 0,
      retries: 0,
      rollbacks: 0,
      lost: 0,
      verified: 0,
      replayed: 0,
      kills: 0,
      problems: new Map<ProblemCode, number>(),
      ttlMs: settings.ttlSeconds * MS_PER_S,
      mayForget: openedAt => this.#kills.some(at => at > openedAt && at - openedAt < most),
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
    const leaked = cut ? undefined : await this.#leaked();
    if (leaked) {
      this.#violate(
        `${leaked} sessions, sockets or operations are left ${this.#settings.ttlSeconds} s after the last use`,
      );
    }
    const rssBytes = warmAndLater(this.#rss);
    const grown = rssBytes && grewBy(rssBytes);
    if (grown !== undefined) this.#violate(grown);
    return {
      settings: this.#settings,
      ledger: this.#ledger,
      drops: this.#drops,
      deaths: this.#deaths,
      seconds,
      rssBytes,
      leaked,
      floods: this.#floods,
      violations: this.#violations,
      cut,
    };
  }

  /** Some are shown at once; all of them are counted. */
  #violate(what: string): void {
    this.#violations.push(what);
    if (this.#violations.length <= MOST_NOTED) this.#progress.note(`${this.#name}: ${what}`);
  }

  #play(): Promise<unknown> {
    const { clients, seed } = this.#settings;
    const surroundings: Surroundings = {
      ledger: this.#ledger,
      fault: () => ({ number: this.#faults, away: this.#away }),
      violate: what => this.#violate(what),
      onDrop: () => this.#drops++,
      onDeath: () => this.#deaths++,
    };
    return Promise.all(
      Array.from({ length: clients }, (_, i) => {
        const random = Random.fromSeed(seed * clients + i);
        const door = doorFor(i, this.#server.origin);
        return new SoakClient(`c${i}`, door, gamesFor(i), random, surroundings).run(
          () => this.#ending,
          () => this.#over,
        );
      }),
    );
  }

  /** Looks after the server while the clients play, and lets the faults happen: in their time, or late where everything is slow. */
  async #disturb(elapsed: () => number, signal: AbortSignal): Promise<void> {
    const { seconds, workers } = this.#settings;
    const total = Math.ceil(seconds);
    const faults = faultsOf(workers);
    const flooding = floods();
    this.#progress.begin(this.#name, total, 0);
    while ((elapsed() < seconds || faults.length > 0) && !signal.aborted) {
      const share = elapsed() / seconds;
      if (flooding[0] && share >= flooding[0].at) {
        this.#progress.note(`${this.#name}: flood: ${flooding[0].name}`);
        this.#notice(await flooding.shift()!.run(this.#server));
      } else if (faults[0] && share >= faults[0].at) await this.#happen(faults.shift()!);
      else if (share >= MEMORY_FROM && share < MEMORY_TO) {
        this.#rss.push((await this.#server.vitals()).rssBytes);
      }
      this.#progress.update(Math.min(Math.round(elapsed()), total), {
        steps: String(this.#ledger.steps),
        verified: String(this.#ledger.verified),
        violations: String(this.#violations.length),
      });
      await delay((seconds * MS_PER_S) / LOOKS);
    }
    this.#progress.end();
  }

  /** Another client must be answered as quickly as without a flood, or nearly. */
  #notice(report: FloodReport): void {
    this.#floods.push(report);
    const worst = ({ livez, step }: FloodReport) => Math.max(livez.p99, step.p99);
    const without = worst(this.#floods[0]);
    if (worst(report) <= without + MOST_MS) return;
    this.#violate(
      `${report.name}: another client waits ${worst(report).toFixed(0)} ms (99th percentile), without a flood ${without.toFixed(0)} ms`,
    );
  }

  async #happen({ name, kills, run }: Fault): Promise<void> {
    this.#progress.note(`${this.#name}: ${name}`);
    const kill = () => {
      if (!kills) return;
      this.#kills.push(performance.now());
      this.#ledger.kills++;
    };
    this.#away = true;
    this.#faults++;
    const begin = performance.now();
    kill();
    await run(this.#server, this.#settings.workers);
    // Who was told of the end of the old one has now to do with the new one.
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

  /** What is left once everything must have expired. */
  async #leaked(): Promise<number> {
    const end = performance.now() + (2 * this.#settings.ttlSeconds + 10) * MS_PER_S;
    for (;;) {
      const { sessions, sockets, queued } = await this.#server.vitals();
      const left = sessions + sockets + queued;
      if (left === 0 || performance.now() > end) return left;
      await delay(MS_PER_S / 4);
    }
  }
}
