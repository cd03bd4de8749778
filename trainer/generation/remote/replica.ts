import type { EngineClient } from './engine-client.ts';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** Counts of an engine since the last {@link Replica.takeCounts}. */
export interface ReplicaCounts {
  requests: number;
  tokens: number;
  /** Tokens by the number of versions between their weights and the newest on arrival. */
  readonly tokensByAge: Map<number, number>;
  failures: number;
  /** Requests refused because the engine was full. */
  busy: number;
  /** Sum over requests, queueing in the engine included. */
  seconds: number;
  /** Time with at least one open request. */
  busySeconds: number;
}

/** The trainer's record of one engine: loaded weights, open requests, and whether it is excluded for a while. */
export class Replica {
  readonly client: EngineClient;
  /** Names of weights that are certainly loaded. */
  readonly loaded = new Set<string>();
  /** Names that were loaded and not unloaded; it has no other weights of this run. */
  readonly known = new Set<string>();
  /** Loads in progress, by name. */
  readonly loading = new Map<string, Promise<void>>();
  /** Open requests by the name of their weights. */
  readonly #open = new Map<string, number>();
  #counts: ReplicaCounts = emptyCounts();
  #failures = 0;
  #pausedUntil = 0;
  /** Start of the first open request. */
  #busySince = 0;
  #onIdle: (() => void)[] = [];

  constructor(client: EngineClient) {
    this.client = client;
  }

  get open(): number {
    let sum = 0;
    for (const count of this.#open.values()) sum += count;
    return sum;
  }

  openOf(name: string): number {
    return this.#open.get(name) ?? 0;
  }

  /** Milliseconds until it may be used again. */
  get pauseMs(): number {
    return Math.max(0, this.#pausedUntil - performance.now());
  }

  begin(name: string): void {
    if (this.#open.size === 0) this.#busySince = performance.now();
    this.#open.set(name, this.openOf(name) + 1);
  }

  end(name: string): void {
    const left = this.openOf(name) - 1;
    if (left > 0) this.#open.set(name, left);
    else this.#open.delete(name);
    if (this.open > 0) return;
    this.#countBusy();
    for (const resolve of this.#onIdle.splice(0)) resolve();
  }

  /** Resolves when no request is open. */
  async idle(): Promise<void> {
    if (this.open > 0) await new Promise<void>(resolve => this.#onIdle.push(resolve));
  }

  /** @param ages number of versions between each token's weights and the newest */
  succeeded(ages: readonly number[], seconds: number): void {
    this.#failures = 0;
    this.#counts.requests++;
    this.#counts.tokens += ages.length;
    this.#counts.seconds += seconds;
    const { tokensByAge } = this.#counts;
    for (const age of ages) tokensByAge.set(age, (tokensByAge.get(age) ?? 0) + 1);
  }

  /** Excludes the engine, longer each time. It may have been restarted, so its loaded versions are unknown. */
  failed(): void {
    this.#counts.failures++;
    const pause = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#failures++);
    this.#pausedUntil = performance.now() + pause;
    this.loaded.clear();
  }

  /** Excludes the engine for a moment, because it is full. */
  full(): void {
    this.#counts.busy++;
    this.#pausedUntil = performance.now() + FIRST_PAUSE_MS;
  }

  takeCounts(): ReplicaCounts {
    if (this.#open.size > 0) this.#countBusy();
    const counts = this.#counts;
    this.#counts = emptyCounts();
    return counts;
  }

  #countBusy(): void {
    const now = performance.now();
    this.#counts.busySeconds += (now - this.#busySince) / 1000;
    this.#busySince = now;
  }
}

function emptyCounts(): ReplicaCounts {
  return {
    requests: 0,
    tokens: 0,
    tokensByAge: new Map(),
    failures: 0,
    busy: 0,
    seconds: 0,
    busySeconds: 0,
  };
}
