import type { Logger } from 'pino';
import { Problem } from '../problems.ts';
import { STORAGE_RETRY_SECONDS, type StorageCode, storageFaultOf } from './faults.ts';

/** Parts that write to the data folder: custom environments, sessions at a checkpoint, operations as they happen. */
export const PERSISTENCE_PARTS = ['environments', 'checkpoint', 'journal'] as const;
export type PersistencePart = (typeof PERSISTENCE_PARTS)[number];

const MS_PER_S = 1000;
const FIRST_DELAY_MS = 100;
const MAX_DELAY_MS = 10_000;

/** State of a server's writes to its data folder; part of the reply of `/readyz`. */
export interface PersistenceReport {
  readonly state: 'ok' | 'degraded';
  /** Time of the first failed write since the last successful one, in ISO 8601. */
  readonly since: string | null;
  readonly reason: string | null;
  /** Bytes acknowledged, held in memory, and still to be written. */
  readonly bytes_waiting: number;
  /** Time since the last write; null before the first one. */
  readonly last_success_age_s: number | null;
}

/** State of the writes of one part. */
export interface PartHealth {
  failures: number;
  /** Milliseconds of `performance.now`; undefined before the first time. */
  lastSuccess: number | undefined;
  bytesWaiting: number;
  failing: { readonly since: number; readonly code: StorageCode; readonly reason: string } | undefined;
}

/** Tracks whether the server's writes to its data folder succeed; each writing part reports here. */
export class PersistenceHealth {
  readonly parts: { readonly [part in PersistencePart]: PartHealth };
  /** Size of the journal on disk. */
  journalBytes: () => number = () => 0;
  readonly #log: Logger | undefined;
  readonly #clock: () => number;

  /** @param clock monotonic, in milliseconds */
  constructor(log?: Logger, clock: () => number = () => performance.now()) {
    this.#log = log;
    this.#clock = clock;
    this.parts = Object.fromEntries(
      PERSISTENCE_PARTS.map(part => [
        part,
        { failures: 0, lastSuccess: undefined, bytesWaiting: 0, failing: undefined },
      ]),
    ) as { [part in PersistencePart]: PartHealth };
  }

  /** A write succeeded, which ends earlier failures. */
  succeeded(part: PersistencePart): void {
    const health = this.parts[part];
    health.lastSuccess = this.#clock();
    if (!health.failing) return;
    const seconds = Math.round((health.lastSuccess - health.failing.since) / MS_PER_S);
    health.failing = undefined;
    this.#log?.warn({ part }, `writing of the ${part} works again after ${seconds} s`);
  }

  /** A write failed. Only the first of several in a row is logged. */
  failed(part: PersistencePart, error: unknown): void {
    const health = this.parts[part];
    health.failures++;
    const fault = storageFaultOf(error);
    const code = fault?.code ?? 'storage_failed';
    const reason = fault?.reason ?? 'writing failed; the log of the server has the cause';
    const first = health.failing === undefined;
    health.failing = { since: health.failing?.since ?? this.#clock(), code, reason };
    if (first) this.#log?.error({ err: error, part }, `writing of the ${part} fails: ${reason}`);
  }

  waiting(part: PersistencePart, bytes: number): void {
    this.parts[part].bytesWaiting = bytes;
  }

  get degraded(): boolean {
    return this.#failing !== undefined;
  }

  /** The part that has failed longest. */
  get #failing(): PartHealth['failing'] {
    let longest: PartHealth['failing'];
    for (const part of PERSISTENCE_PARTS) {
      const { failing } = this.parts[part];
      if (failing && (longest === undefined || failing.since < longest.since)) longest = failing;
    }
    return longest;
  }

  /** Milliseconds since a part was last written; undefined before the first time. */
  age(part: PersistencePart): number | undefined {
    const { lastSuccess } = this.parts[part];
    return lastSuccess === undefined ? undefined : this.#clock() - lastSuccess;
  }

  report(): PersistenceReport {
    const failing = this.#failing;
    const ages = PERSISTENCE_PARTS.map(part => this.age(part)).filter(age => age !== undefined);
    return {
      state: failing ? 'degraded' : 'ok',
      since: failing ? new Date(Date.now() - (this.#clock() - failing.since)).toISOString() : null,
      reason: failing?.reason ?? null,
      bytes_waiting: PERSISTENCE_PARTS.reduce((sum, part) => sum + this.parts[part].bytesWaiting, 0),
      last_success_age_s: ages.length > 0 ? Math.round(Math.min(...ages)) / MS_PER_S : null,
    };
  }

  /** The reason why the server is not ready; undefined while all is well. */
  problem(): Problem | undefined {
    const failing = this.#failing;
    if (!failing) return undefined;
    const report = this.report();
    return new Problem(
      failing.code,
      `${failing.reason} since ${report.since}; ${report.bytes_waiting} bytes wait in memory to be written`,
      { retryAfterSeconds: STORAGE_RETRY_SECONDS, members: { persistence: report } },
    );
  }
}

/** Retries after a delay that doubles with each consecutive failure. */
export class RetryTimer {
  readonly #attempt: () => void;
  #delayMs = FIRST_DELAY_MS;
  #timer: NodeJS.Timeout | undefined;

  constructor(attempt: () => void) {
    this.#attempt = attempt;
  }

  /** True if an attempt is scheduled. */
  get pending(): boolean {
    return this.#timer !== undefined;
  }

  /** Schedules the next attempt, unless one is scheduled. */
  failed(): void {
    if (this.#timer) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#attempt();
    }, this.#delayMs).unref();
    this.#delayMs = Math.min(2 * this.#delayMs, MAX_DELAY_MS);
  }

  succeeded(): void {
    this.stop();
    this.#delayMs = FIRST_DELAY_MS;
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }
}
