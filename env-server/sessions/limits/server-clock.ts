import { uptime } from 'node:os';
import { performance } from 'node:perf_hooks';
import { bootId } from '../../persistence/lock.ts';
import type { ClockRow } from '../../persistence/session-rows.ts';

const MS_PER_S = 1000;

/** Time sources of a {@link ServerClock}; tests replace them. */
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
 * The clock by which sessions expire, in milliseconds. It agrees with the wall clock when a server starts for the first
 * time, and from then on counts elapsed time: setting the wall clock does not move it. After a restart it continues by
 * the machine's own count, or by the wall clock if the machine was rebooted.
 */
export class ServerClock {
  /** True if a jump means that the process did not run; not so where a test moves the clock. */
  readonly isElapsed: boolean;
  readonly #sources: ClockSources;
  /** Server time minus monotonic time. */
  #lead: number;

  constructor(sources: ClockSources = SYSTEM, isElapsed = true) {
    this.#sources = sources;
    this.isElapsed = isElapsed;
    this.#lead = sources.wall() - sources.monotonic();
  }

  readonly now = (): number => Math.floor(this.#lead + this.#sources.monotonic());

  /** The wall clock, in milliseconds since the epoch. */
  readonly wall = (): number => this.#sources.wall();

  /** Server time at a moment of `performance.now`. */
  at(monotonic: number): number {
    return this.#sources === SYSTEM ? Math.floor(this.#lead + monotonic) : this.now();
  }

  /** Converts a server time to the current wall clock, in milliseconds since the epoch. */
  toWall(time: number): number {
    return time - this.now() + this.#sources.wall();
  }

  get moment(): ClockRow {
    const { wall, uptime, boot } = this.#sources;
    return { server: this.now(), wall: wall(), uptime: uptime(), boot: boot() };
  }

  /** Continues from a moment of an earlier process. */
  goOnFrom(earlier: ClockRow): void {
    const { wall, uptime, boot, monotonic } = this.#sources;
    const sameBoot = earlier.boot !== '' && earlier.boot === boot();
    const passed = sameBoot ? uptime() - earlier.uptime : wall() - earlier.wall;
    this.#lead = earlier.server + Math.max(0, passed) - monotonic();
  }
}

/** Longest delay in noticing an expired item, in milliseconds. */
export const SLOT_MS = 1000;

/** Something that expires; `slot` belongs to the wheel. */
export interface Expiring {
  /** Milliseconds since the epoch. It may move later at any time without notifying the wheel, and never earlier. */
  readonly expiresAt: number;
  slot: number;
}

/**
 * A timer wheel. Slots are one second wide; an item used since it was scheduled is moved only when its slot comes up,
 * so using an item costs nothing.
 */
export class ExpiryWheel<T extends Expiring> {
  readonly #slots = new Map<number, Set<T>>();
  #swept: number;

  constructor(now: number) {
    this.#swept = Math.floor(now / SLOT_MS);
  }

  schedule(item: T): void {
    const slot = Math.max(Math.ceil(item.expiresAt / SLOT_MS), this.#swept + 1);
    item.slot = slot;
    const items = this.#slots.get(slot);
    if (items) items.add(item);
    else this.#slots.set(slot, new Set([item]));
  }

  cancel(item: T): void {
    const items = this.#slots.get(item.slot);
    if (!items?.delete(item)) return;
    if (items.size === 0) this.#slots.delete(item.slot);
  }

  /** Removes and returns the items that have expired. */
  sweep(now: number): T[] {
    const last = Math.floor(now / SLOT_MS);
    const expired: T[] = [];
    const moved: T[] = [];
    for (const [slot, items] of this.#slots) {
      if (slot > last) continue;
      this.#slots.delete(slot);
      for (const item of items) (item.expiresAt <= now ? expired : moved).push(item);
    }
    this.#swept = Math.max(this.#swept, last);
    for (const item of moved) this.schedule(item);
    return expired;
  }
}

/** A member of the list, linked to its neighbors. */
export interface Ordered<T> {
  /** The next newer member. */
  newer: T | undefined;
  /** The next older member. */
  older: T | undefined;
}

/** Keeps members in order of arrival, so that the newest are found without a scan. */
export class NewestFirst<T extends Ordered<T>> {
  #newest: T | undefined;

  add(member: T): void {
    member.older = this.#newest;
    if (this.#newest) this.#newest.newer = member;
    this.#newest = member;
  }

  remove(member: T): void {
    const { newer, older } = member;
    if (newer) newer.older = older;
    else if (this.#newest === member) this.#newest = older;
    if (older) older.newer = newer;
    member.newer = undefined;
    member.older = undefined;
  }

  *[Symbol.iterator](): Generator<T> {
    for (let member = this.#newest; member; member = member.older) yield member;
  }
}
