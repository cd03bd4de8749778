import { uptime } from 'node:os';
import { performance } from 'node:perf_hooks';
import { bootId } from '../../persistence/lock.ts';

const MS_PER_S = 1000;

/** A moment by every clock there is, in milliseconds. */
export interface ClockReading {
  /** Time by the clock of the server. */
  readonly server: number;
  /** Since the epoch, as somebody set it. */
  readonly wall: number;
  /** Since the machine was started. */
  readonly uptime: number;
  /** Differs from one start of the machine to the next; empty where that is not known. */
  readonly boot: string;
}

/** Time sources of a {@link ServerClock}; tests have others. */
export interface ClockSources {
  wall(): number;
  monotonic(): number;
  uptime(): number;
  boot(): string;
}

const SYSTEM: ClockSources = {
  wall: Date.now,
  monotonic: () => performance.now(),
  uptime: () => MS_PER_S * uptime(),
  boot: bootId,
};

/**
 * The time by which sessions expire, in milliseconds. It agrees with the wall clock when a server starts for the first
 * time, and from then on counts what passes: setting the wall clock does not move it. After a restart it continues from
 * where it was by the machine's own count, or by the wall clock if the machine was restarted.
 */
export class ServerClock {
  readonly #sources: ClockSources;
  /** Server's time minus that of the monotonic clock. */
  #lead: number;

  constructor(sources: ClockSources = SYSTEM) {
    this.#sources = sources;
    this.#lead = sources.wall() - sources.monotonic();
  }

  readonly now = (): number => Math.floor(this.#lead + this.#sources.monotonic());

  /** Server's time at a moment of `performance.now`. */
  at(monotonic: number): number {
    return this.#sources === SYSTEM ? Math.floor(this.#lead + monotonic) : this.now();
  }

  /** One of its times by the wall clock as it is set now, in milliseconds since the epoch. */
  toWall(time: number): number {
    return time - this.now() + this.#sources.wall();
  }

  get moment(): ClockReading {
    const { wall, uptime, boot } = this.#sources;
    return { server: this.now(), wall: wall(), uptime: uptime(), boot: boot() };
  }

  /** Continues from a moment of an earlier process. */
  goOnFrom(earlier: ClockReading): void {
    const { wall, uptime, boot, monotonic } = this.#sources;
    const sameBoot = earlier.boot !== '' && earlier.boot === boot();
    const passed = sameBoot ? uptime() - earlier.uptime : wall() - earlier.wall;
    this.#lead = earlier.server + Math.max(0, passed) - monotonic();
  }
}

/** The clock of a test, which moves it as it likes: it is its own wall clock, and knows nothing of earlier processes. */
export class FakeClock {
  readonly now: () => number;

  constructor(now: () => number) {
    this.now = now;
  }

  at(): number {
    return this.now();
  }

  toWall(time: number): number {
    return time;
  }

  get moment(): undefined {
    return undefined;
  }

  goOnFrom(): void {
    // The test that moves it decides.
  }
}

export type Clock = ServerClock | FakeClock;
