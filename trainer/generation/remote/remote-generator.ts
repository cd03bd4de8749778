import { setTimeout as sleep } from 'node:timers/promises';
import type { GenerateRequest, Generation } from '../generation.ts';
import type { Generator } from '../generator.ts';
import type { Grammars, TokenGrammar } from '../grammar.ts';
import { type EngineCall, type EngineClient, EngineError, type EngineReply } from './engine-client.ts';
import { Replica } from './replica.ts';

const SHORTEST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 1_000;
/** Attempts at loading a version before an engine is left out: a network disk may show the folder late. */
const LOAD_ATTEMPTS = 5;
const FIRST_LOAD_PAUSE_MS = 200;

export interface RemoteGeneratorOptions {
  readonly engines: readonly EngineClient[];
  /** Longest sequence of the policy that learns. */
  readonly maxSequenceLength: number;
  readonly vocabularySize: number;
  /** What constrained requests may name. */
  readonly grammars: Grammars;
  /** How long the generator waits when no engine answers. */
  readonly patienceMs: number;
  /** Versions before the newest that stay loaded, for requests under way. */
  readonly olderVersions: number;
  /** Told of engines that are left out and come back. */
  readonly note: (text: string) => void;
}

/** No engine has answered for longer than the run waits. */
export class EnginesAwayError extends Error {
  constructor(message: string, cause: unknown) {
    super(message, { cause });
    this.name = 'EnginesAwayError';
  }
}

interface Version {
  readonly number: number;
  readonly name: string;
  readonly folder: string;
}

interface OpenSequence {
  tokens: number[];
  /** The engine that has its prefix in its cache. */
  home: Replica | null;
  readonly released: AbortController;
  busy: boolean;
}

/**
 * Samples on engines elsewhere, several of them alike. A request names one version of the weights and ends under it. An engine
 * that fails is left alone for a while; its open requests are asked again elsewhere with the same seed, so that nothing is
 * lost and nothing counts twice: a result is taken once, when it is whole.
 */
export class RemoteGenerator implements Generator {
  readonly #options: RemoteGeneratorOptions;
  readonly #replicas: readonly Replica[];
  readonly #sequences = new Map<number, OpenSequence>();
  readonly #closed = new AbortController();
  #versions: Version[] = [];
  #retries = 0;

  constructor(options: RemoteGeneratorOptions) {
    this.#options = options;
    this.#replicas = options.engines.map(client => new Replica(client));
  }

  /**
   * Asks every engine whether it can do what is needed.
   * @throws EngineError of the first that lacks something; AggregateError when none answers
   */
  async probe(): Promise<void> {
    const results = await Promise.allSettled(
      this.#replicas.map(({ client }) => client.probe(this.#closed.signal)),
    );
    const failures = results.flatMap((result, i) =>
      result.status === 'rejected' ? [{ replica: this.#replicas[i], error: result.reason as Error }] : [],
    );
    const lacking = failures.find(({ error }) => error instanceof EngineError && !error.passing);
    if (lacking !== undefined) throw lacking.error;
    for (const { replica, error } of failures) this.#failed(replica, error);
    if (failures.length === this.#replicas.length) {
      throw new AggregateError(
        failures.map(({ error }) => error),
        `no engine answers: ${failures.map(({ error }) => error.message).join('; ')}`,
      );
    }
  }

  /**
   * Has every engine load new weights; new requests name them from then on. Engines that do not take them are left out until
   * they do.
   * @param folder that the engines see
   * @throws EnginesAwayError when no engine takes them for longer than the run waits
   */
  async publish(number: number, name: string, folder: string): Promise<void> {
    const version = { number, name, folder };
    await this.#unloadOld();
    await Promise.all(
      this.#replicas.map(async replica => {
        if (replica.pauseMs > 0) return;
        try {
          await this.#ensure(replica, version);
        } catch (error) {
          this.#failed(replica, error as Error);
        }
      }),
    );
    this.#versions = [version, ...this.#versions];
    (await this.#taken(version, null, performance.now())).end(name);
  }

  /** Folders of versions that no engine will load any more; forgets them. */
  takeOldFolders(): string[] {
    const kept = this.#options.olderVersions + 1;
    const old = this.#versions.slice(kept);
    this.#versions = this.#versions.slice(0, kept);
    return old.map(({ folder }) => folder);
  }

  async generate(request: GenerateRequest): Promise<Generation> {
    const { sequenceId, append, sampling, seed, grammar } = request;
    const { maxSequenceLength, grammars } = this.#options;
    const [version] = this.#versions;
    if (version === undefined) throw new Error('no weights were published yet');
    const sequence = this.#sequence(sequenceId);
    if (sequence.busy) throw new RangeError(`sequence ${sequenceId} is being continued already`);
    const promptIds = [...sequence.tokens, ...Array.from(append)];
    if (promptIds.length === 0)
      throw new RangeError(`sequence ${sequenceId} is empty: append at least one token`);
    const room = Math.max(0, maxSequenceLength - promptIds.length);
    if (room === 0)
      return asGeneration({ tokenIds: [], logProbs: [], finishReason: 'length' }, version, 'context');
    const call: EngineCall = {
      promptIds,
      sampling: { ...sampling, maxNewTokens: Math.min(room, sampling.maxNewTokens) },
      seed,
      ...(grammar === undefined ? {} : { grammar: named(grammar, grammars) }),
      weights: version.name,
    };
    sequence.busy = true;
    try {
      const reply = await this.#ask(call, version, sequence);
      sequence.tokens = [...promptIds, ...reply.tokenIds];
      const atLimit = room < sampling.maxNewTokens ? 'context' : 'length';
      const finishReason = reply.finishReason === 'stop' ? 'stop' : atLimit;
      // Greedy sampling draws from a single point, as it does here.
      const logProbs = sampling.temperature === 0 ? reply.logProbs.map(() => 0) : reply.logProbs;
      return asGeneration({ ...reply, logProbs }, version, finishReason);
    } finally {
      sequence.busy = false;
    }
  }

  release(sequenceId: number): void {
    const sequence = this.#sequences.get(sequenceId);
    this.#sequences.delete(sequenceId);
    sequence?.released.abort(new Error(`sequence ${sequenceId} was released while it was being continued`));
  }

  /** What the engines did since the last call. */
  takeMetrics(): Record<string, number> {
    const metrics: Record<string, number> = { 'generation/retries': this.#retries };
    this.#retries = 0;
    const [version] = this.#versions;
    let away = 0;
    for (const [i, replica] of this.#replicas.entries()) {
      const { requests, tokens, failures, busy, seconds } = replica.takeCounts();
      const prefix = `generation/engine_${i}`;
      metrics[`${prefix}/requests`] = requests;
      metrics[`${prefix}/tokens`] = tokens;
      metrics[`${prefix}/failures`] = failures;
      metrics[`${prefix}/busy`] = busy;
      metrics[`${prefix}/request_s`] = requests === 0 ? 0 : seconds / requests;
      if (version !== undefined && !replica.loaded.has(version.name)) away++;
    }
    metrics['generation/engines_away'] = away;
    return metrics;
  }

  /** Unloads what was loaded, where the engines still answer. */
  async close(): Promise<void> {
    for (const id of this.#sequences.keys()) this.release(id);
    const signal = AbortSignal.timeout(LONGEST_WAIT_MS);
    await Promise.allSettled(
      this.#replicas.flatMap(({ client, known }) => [...known].map(name => client.unload(name, signal))),
    );
    this.#closed.abort(new Error('the generator was closed'));
    await Promise.all(this.#replicas.map(({ client }) => client.close()));
  }

  #sequence(id: number): OpenSequence {
    const known = this.#sequences.get(id);
    if (known !== undefined) return known;
    const sequence = { tokens: [], home: null, released: new AbortController(), busy: false };
    this.#sequences.set(id, sequence);
    return sequence;
  }

  /** Asks one engine after another until one answers well. */
  async #ask(call: EngineCall, version: Version, sequence: OpenSequence): Promise<EngineReply> {
    const signal = AbortSignal.any([sequence.released.signal, this.#closed.signal]);
    let since = performance.now();
    for (;;) {
      const replica = await this.#taken(version, sequence.home, since, signal);
      const began = performance.now();
      try {
        const reply = await replica.client.generate(call, signal);
        this.#check(reply, call, replica);
        replica.succeeded(reply.tokenIds.length, (performance.now() - began) / 1000);
        sequence.home = replica;
        return reply;
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof EngineError)) throw error;
        this.#retries++;
        if (error.busy) {
          replica.full();
          since = performance.now();
        } else this.#failed(replica, error);
      } finally {
        replica.end(version.name);
      }
    }
  }

  /** @throws EngineError for a reply that cannot be what was asked for */
  #check({ tokenIds, logProbs }: EngineReply, { sampling }: EngineCall, { client }: Replica): void {
    const { vocabularySize } = this.#options;
    const fail = (what: string): never => {
      throw new EngineError(`${client.url}: ${what}`);
    };
    if (tokenIds.length !== logProbs.length) {
      fail(`${tokenIds.length} tokens came with ${logProbs.length} log-probabilities`);
    }
    if (tokenIds.length === 0 || tokenIds.length > sampling.maxNewTokens) {
      fail(`${tokenIds.length} tokens came, asked for were up to ${sampling.maxNewTokens}`);
    }
    const unknown = tokenIds.find(id => !(Number.isInteger(id) && id >= 0 && id < vocabularySize));
    if (unknown !== undefined) fail(`token id ${unknown} is outside the vocabulary of ${vocabularySize}`);
    const wrong = logProbs.find(logProb => !(Number.isFinite(logProb) && logProb <= 1e-6));
    if (wrong !== undefined) fail(`${wrong} is no log-probability`);
  }

  /**
   * Takes a place on an engine that has the version: the sequence's own while it is well, else the one with the least to do.
   * The caller ends it.
   * @param since when the wait began
   * @throws EnginesAwayError
   */
  async #taken(
    version: Version,
    home: Replica | null,
    since: number,
    signal: AbortSignal = this.#closed.signal,
  ): Promise<Replica> {
    let last: unknown;
    for (;;) {
      signal.throwIfAborted();
      const well = this.#replicas.filter(({ pauseMs }) => pauseMs === 0);
      const ready = well.filter(({ loaded }) => loaded.has(version.name));
      if (home !== null && ready.includes(home)) {
        home.begin(version.name);
        return home;
      }
      // Engines that are back take the version next to those that have it.
      const missing = well.filter(replica => !ready.includes(replica));
      const loads = missing.map(replica =>
        this.#ensure(replica, version).catch(error => {
          last = error;
          this.#failed(replica, error as Error);
        }),
      );
      if (ready.length > 0) {
        const best = ready.reduce((least, one) => (one.open < least.open ? one : least));
        best.begin(version.name);
        return best;
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
      const pause = Math.min(...this.#replicas.map(({ pauseMs }) => pauseMs));
      await sleep(Math.min(LONGEST_WAIT_MS, Math.max(SHORTEST_WAIT_MS, pause)), undefined, { signal });
    }
  }

  /** Loads a version on an engine that lacks it; several who ask wait for one load. */
  #ensure(replica: Replica, version: Version): Promise<void> {
    if (replica.loaded.has(version.name)) return Promise.resolve();
    const under = replica.loading.get(version.name);
    if (under !== undefined) return under;
    const load = this.#load(replica, version).finally(() => replica.loading.delete(version.name));
    replica.loading.set(version.name, load);
    return load;
  }

  async #load(replica: Replica, { name, folder }: Version): Promise<void> {
    const { client, loaded } = replica;
    const { signal } = this.#closed;
    // Weights that take the place of others wait for the requests under those.
    if (!client.versioned) {
      loaded.clear();
      await replica.idle();
    }
    for (let attempt = 1; ; attempt++) {
      try {
        await client.load(name, folder, signal);
        loaded.add(name);
        replica.known.add(name);
        return;
      } catch (error) {
        if (attempt >= LOAD_ATTEMPTS) throw error;
        await sleep(FIRST_LOAD_PAUSE_MS * 2 ** (attempt - 1), undefined, { signal });
      }
    }
  }

  /** Makes room for one more version: unloads those that no request may name then. */
  async #unloadOld(): Promise<void> {
    const kept = new Set(this.#versions.slice(0, this.#options.olderVersions).map(({ name }) => name));
    await Promise.allSettled(
      this.#replicas.flatMap(replica =>
        [...replica.known]
          .filter(name => !kept.has(name) && replica.openOf(name) === 0)
          .map(async name => {
            await replica.client.unload(name, this.#closed.signal);
            replica.loaded.delete(name);
            replica.known.delete(name);
          }),
      ),
    );
  }

  #failed(replica: Replica, error: Error): void {
    if (this.#closed.signal.aborted) return;
    const wasWell = replica.pauseMs === 0;
    replica.failed();
    if (wasWell) this.#options.note(`generation engine left out for a while: ${error.message}`);
  }
}

/** @throws RangeError for a name that no grammar has */
function named(grammar: string | TokenGrammar, grammars: Grammars): TokenGrammar {
  if (typeof grammar !== 'string') return grammar;
  if (Object.hasOwn(grammars, grammar)) return grammars[grammar];
  throw new RangeError(
    `no grammar is named ${grammar}; there are: ${Object.keys(grammars).join(', ') || 'none'}`,
  );
}

function asGeneration(
  { tokenIds, logProbs }: EngineReply,
  version: Version,
  finishReason: Generation['finishReason'],
): Generation {
  return {
    tokenIds: Int32Array.from(tokenIds),
    logProbs: Float32Array.from(logProbs),
    versions: new Int32Array(tokenIds.length).fill(version.number),
    finishReason,
  };
}
