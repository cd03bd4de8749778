import { backoffMs, pause, retry } from '../../../shared/http/retry.ts';
import { type EngineClient, EngineError } from './engine-client.ts';

const SHORTEST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 1_000;
/** Attempts at loading a version before an engine is left out: a network disk may show the folder with a delay. */
const LOAD_ATTEMPTS = 5;
const LOAD_BACKOFF = { firstMs: 200 };

export interface ReplicaPoolOptions {
  readonly engines: readonly EngineClient[];
  /** Milliseconds that the pool waits when no engine answers. */
  readonly patienceMs: number;
  /** Versions before the newest that stay loaded, for requests in progress. */
  readonly olderVersions: number;
  /** Called when an engine is left out and when it is back. */
  readonly note: (text: string) => void;
}

/** No engine answered within the run's patience. */
export class EnginesAwayError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'EnginesAwayError';
  }
}

/** Weights under the engines' name for them. */
export interface WeightVersion {
  readonly number: number;
  readonly name: string;
  /** Folder from which engines read them. */
  readonly folder: string;
}

/** Several equal engines: their weights, and whether they can be used. */
export class ReplicaPool {
  /** Aborted by {@link close}. */
  readonly closed: AbortSignal;
  readonly #options: ReplicaPoolOptions;
  readonly #replicas: readonly Replica[];
  readonly #closing = new AbortController();
  #versions: WeightVersion[] = [];
  /** Numbers of all published versions, by name. */
  readonly #numbers = new Map<string, number>();
  /** Error of an engine that rejects the weights: it ends the run. */
  #refusal: EngineError | undefined;

  constructor(options: ReplicaPoolOptions) {
    this.#options = options;
    this.#replicas = options.engines.map(client => new Replica(client));
    this.closed = this.#closing.signal;
  }

  /** Engines can hold several versions at once. */
  get #versioned(): boolean {
    return this.#replicas.every(({ client }) => client.versioned);
  }

  /** Version for new requests; undefined before the first is published. */
  get newest(): WeightVersion | undefined {
    return this.#versions[0];
  }

  /**
   * Checks the abilities of every engine.
   * @throws EngineError of the first that lacks something; AggregateError when none answers
   */
  async probe(): Promise<void> {
    const results = await Promise.allSettled(this.#replicas.map(({ client }) => client.probe(this.closed)));
    const failures = results.flatMap((result, i) =>
      result.status === 'rejected' ? [{ replica: this.#replicas[i], error: result.reason as Error }] : [],
    );
    const lacking = failures.find(({ error }) => error instanceof EngineError && !error.passing);
    if (lacking !== undefined) throw lacking.error;
    for (const { replica, error } of failures) this.failed(replica, error);
    if (failures.length === this.#replicas.length) {
      throw new AggregateError(
        failures.map(({ error }) => error),
        `no engine answers: ${failures.map(({ error }) => error.message).join('; ')}`,
      );
    }
  }

  /**
   * Loads new weights on every engine; new requests name them from then on. Engines that do not answer are left out
   * until they have loaded them.
   * @throws EngineError of an engine that rejects them; EnginesAwayError when no engine loads them within the run's
   * patience
   */
  async publish(version: WeightVersion): Promise<void> {
    await this.#unloadOld();
    this.#numbers.set(version.name, version.number);
    // If it replaces the previous version, no request may name that one any longer.
    const add = () => {
      this.#versions = [version, ...this.#versions];
    };
    if (!this.#versioned) add();
    await Promise.all(
      this.#replicas.map(async replica => {
        if (replica.pauseMs > 0) return;
        try {
          await this.#ensure(replica, version);
        } catch (error) {
          if (isRefusal(error)) throw error;
          this.failed(replica, error as Error);
        }
      }),
    );
    if (this.#versioned) add();
    (await this.take(version, null, performance.now())).replica.end(version.name);
  }

  /** Number of versions between a version and the newest. */
  ageOf(number: number): number {
    return Math.max(
      0,
      this.#versions.findIndex(version => version.number === number),
    );
  }

  /** Number of the version with a name; undefined for an unknown name. */
  numberOf(name: string): number | undefined {
    return this.#numbers.get(name);
  }

  /** Folders of versions that no engine will load again; forgets them. */
  takeOldFolders(): string[] {
    const kept = this.#options.olderVersions + 1;
    const old = this.#versions.slice(kept);
    this.#versions = this.#versions.slice(0, kept);
    return old.map(({ folder }) => folder);
  }

  /**
   * Takes a place on an engine with the version: the sequence's own while it works, else the least busy one. If
   * versions replace one another it takes the newest. The caller ends the place.
   * @param since start of the wait
   * @throws EngineError of an engine that rejects the version; EnginesAwayError
   */
  async take(
    asked: WeightVersion,
    home: Replica | null,
    since: number,
    signal: AbortSignal = this.closed,
  ): Promise<{ replica: Replica; version: WeightVersion }> {
    let last: unknown;
    for (;;) {
      signal.throwIfAborted();
      const version = this.#versioned ? asked : (this.newest ?? asked);
      if (this.#refusal !== undefined) throw this.#refusal;
      const well = this.#replicas.filter(({ pauseMs }) => pauseMs === 0);
      const ready = well.filter(({ loaded }) => loaded.has(version.name));
      if (home !== null && ready.includes(home)) {
        home.begin(version.name);
        return { replica: home, version };
      }
      // Engines that are back load the version in parallel with those that have it.
      const missing = well.filter(replica => !ready.includes(replica));
      const loads = missing.map(replica =>
        this.#ensure(replica, version).catch(error => {
          last = error;
          if (isRefusal(error)) this.#refusal = error as EngineError;
          else this.failed(replica, error as Error);
        }),
      );
      if (ready.length > 0) {
        const best = ready.reduce((least, one) => (one.open < least.open ? one : least));
        best.begin(version.name);
        return { replica: best, version };
      }
      if (loads.length > 0) {
        await Promise.race(loads);
        continue;
      }
      const { patienceMs } = this.#options;
      if (performance.now() - since > patienceMs) {
        throw new EnginesAwayError(
          `no engine of generation.urls has answered for ${Math.round(patienceMs / 1000)} s (generation.patience_s)`,
          last,
        );
      }
      const soonest = Math.min(...this.#replicas.map(({ pauseMs }) => pauseMs));
      await pause(Math.min(LONGEST_WAIT_MS, Math.max(SHORTEST_WAIT_MS, soonest)), signal);
    }
  }

  /** Loads a version on an engine that lacks it; concurrent callers share one load. */
  #ensure(replica: Replica, version: WeightVersion): Promise<void> {
    if (replica.loaded.has(version.name)) return Promise.resolve();
    const under = replica.loading.get(version.name);
    if (under !== undefined) return under;
    const load = this.#load(replica, version).finally(() => replica.loading.delete(version.name));
    replica.loading.set(version.name, load);
    return load;
  }

  async #load(replica: Replica, { name, folder }: WeightVersion): Promise<void> {
    const { client, loaded } = replica;
    const signal = this.closed;
    if (!client.versioned) {
      // Two loads at once would leave a mixture of weights.
      await Promise.allSettled([...replica.loading.values()]);
      loaded.clear();
      // Weights that replace others wait for the requests under those.
      if (!client.inFlight) await replica.idle();
    }
    const pauseAfter = (error: unknown, attempt: number): number => {
      if (attempt >= LOAD_ATTEMPTS || isRefusal(error)) throw error;
      return backoffMs(LOAD_BACKOFF, attempt);
    };
    await retry(() => client.load(name, folder, signal), pauseAfter, signal);
    loaded.add(name);
    replica.known.add(name);
  }

  /** Makes room for one more version: unloads those that no later request may name. */
  async #unloadOld(): Promise<void> {
    const kept = new Set(this.#versions.slice(0, this.#options.olderVersions).map(({ name }) => name));
    await Promise.allSettled(
      this.#replicas.flatMap(replica =>
        [...replica.known]
          .filter(name => !kept.has(name) && replica.openOf(name) === 0)
          .map(async name => {
            await replica.client.unload(name, this.closed);
            replica.loaded.delete(name);
            replica.known.delete(name);
          }),
      ),
    );
  }

  /** Excludes an engine for a while. */
  failed(replica: Replica, error: Error): void {
    if (this.closed.aborted) return;
    const wasWell = replica.pauseMs === 0;
    replica.failed();
    if (wasWell) this.#options.note(`generation engine left out for a while: ${error.message}`);
  }

  /** Counts of the engines since the last call. */
  takeMetrics(): Record<string, number> {
    const metrics: Record<string, number> = {};
    const version = this.newest;
    const tokensByAge = new Map<number, number>();
    let away = 0;
    for (const [i, replica] of this.#replicas.entries()) {
      const counts = replica.takeCounts();
      const { requests, tokens, failures, busy, seconds, busySeconds } = counts;
      for (const [age, count] of counts.tokensByAge) {
        tokensByAge.set(age, (tokensByAge.get(age) ?? 0) + count);
      }
      const prefix = `generation/engine_${i}`;
      metrics[`${prefix}/requests`] = requests;
      metrics[`${prefix}/tokens`] = tokens;
      metrics[`${prefix}/tokens_per_s`] = busySeconds === 0 ? 0 : tokens / busySeconds;
      metrics[`${prefix}/failures`] = failures;
      metrics[`${prefix}/busy`] = busy;
      metrics[`${prefix}/request_s`] = requests === 0 ? 0 : seconds / requests;
      metrics[`${prefix}/versions`] = replica.known.size;
      if (version !== undefined && !replica.loaded.has(version.name)) away++;
    }
    const all = [...tokensByAge.values()].reduce((sum, count) => sum + count, 0);
    for (let age = 0; age < Math.min(this.#versions.length, this.#options.olderVersions + 1); age++) {
      metrics[`generation/token_share_${age}`] = all === 0 ? 0 : (tokensByAge.get(age) ?? 0) / all;
    }
    metrics['generation/engines_away'] = away;
    return metrics;
  }

  /** Unloads the loaded weights from engines that still answer. */
  async close(): Promise<void> {
    const signal = AbortSignal.timeout(LONGEST_WAIT_MS);
    await Promise.allSettled(
      this.#replicas.flatMap(({ client, known }) => [...known].map(name => client.unload(name, signal))),
    );
    this.#closing.abort(new Error('the generator was closed'));
    await Promise.all(this.#replicas.map(({ client }) => client.close()));
  }
}

/** True if the engine rejects a request and would reject it again. */
export function isRefusal(error: unknown): boolean {
  return error instanceof EngineError && !error.passing;
}

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 30_000;

/** Counts of an engine since the last {@link Replica.takeCounts}. */
const emptyCounts = () => ({
  requests: 0,
  tokens: 0,
  /** Tokens by the number of versions between their weights and the newest on arrival. */
  tokensByAge: new Map<number, number>(),
  failures: 0,
  /** Requests refused because the engine was full. */
  busy: 0,
  /** Sum over requests, queueing in the engine included. */
  seconds: 0,
  /** Time with at least one open request. */
  busySeconds: 0,
});

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
  #counts = emptyCounts();
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

  takeCounts(): ReturnType<typeof emptyCounts> {
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
