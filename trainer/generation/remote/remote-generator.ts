import { remembered } from '../../../shared/remembered.ts';
import type { GenerateRequest, Generation, Generator, StreamedToken } from '../generation.ts';
import { type Grammars, type TokenGrammar, tokenGrammar } from '../grammar.ts';
import { checkReply, type EngineCall, EngineError, type EngineReply } from './engine-client.ts';
import type { Replica } from './replica-pool.ts';
import { isRefusal, ReplicaPool, type ReplicaPoolOptions, type WeightVersion } from './replica-pool.ts';

export interface RemoteGeneratorOptions extends ReplicaPoolOptions {
  /** Longest sequence of the learning policy. */
  readonly maxSequenceLength: number;
  readonly vocabularySize: number;
  /** Grammars that constrained requests may name. */
  readonly grammars: Grammars;
}

interface OpenSequence {
  tokens: number[];
  /** The engine with its prefix in the cache. */
  home: Replica | null;
  readonly released: AbortController;
  busy: boolean;
}

const openSequence = (): OpenSequence => ({
  tokens: [],
  home: null,
  released: new AbortController(),
  busy: false,
});

/**
 * Samples on several equal remote engines. A request names one version of the weights and ends under it. An engine that
 * fails is not used for a while. Its open requests are repeated on other engines with the same seed, so nothing is lost
 * or counted twice: only a complete result is used.
 */
export class RemoteGenerator implements Generator {
  readonly #options: RemoteGeneratorOptions;
  readonly #pool: ReplicaPool;
  readonly #sequences = new Map<number, OpenSequence>();
  #retries = 0;

  constructor(options: RemoteGeneratorOptions) {
    this.#options = options;
    this.#pool = new ReplicaPool(options);
  }

  /** @see ReplicaPool.probe */
  probe(): Promise<void> {
    return this.#pool.probe();
  }

  /** @see ReplicaPool.publish */
  publish(number: number, name: string, folder: string): Promise<void> {
    return this.#pool.publish({ number, name, folder });
  }

  /** @see ReplicaPool.takeOldFolders */
  takeOldFolders(): string[] {
    return this.#pool.takeOldFolders();
  }

  async generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    const { sequenceId, append, sampling, seed, grammar } = request;
    const { maxSequenceLength, grammars } = this.#options;
    const { newest } = this.#pool;
    if (newest === undefined) throw new Error('no weights were published yet');
    const sequence = remembered(this.#sequences, sequenceId, openSequence);
    if (sequence.busy) throw new RangeError(`sequence ${sequenceId} is being continued already`);
    const promptIds = [...sequence.tokens, ...Array.from(append)];
    if (promptIds.length === 0)
      throw new RangeError(`sequence ${sequenceId} is empty: append at least one token`);
    const room = Math.max(0, maxSequenceLength - promptIds.length);
    if (room === 0) return asGeneration({ tokenIds: [], logProbs: [] }, [newest.number], 'context');
    const call: Omit<EngineCall, 'weights'> = {
      promptIds,
      sampling: { ...sampling, maxNewTokens: Math.min(room, sampling.maxNewTokens) },
      seed,
      ...(grammar === undefined ? {} : { grammar: named(grammar, grammars) }),
    };
    sequence.busy = true;
    try {
      const { reply, versions } = await this.#ask(call, newest, sequence);
      sequence.tokens = [...promptIds, ...reply.tokenIds];
      const atLimit = room < sampling.maxNewTokens ? 'context' : 'length';
      const finishReason = reply.finishReason === 'stop' ? 'stop' : atLimit;
      // Greedy sampling draws from a single point, as on this machine.
      const logProbs = sampling.temperature === 0 ? reply.logProbs.map(() => 0) : reply.logProbs;
      for (const [i, tokenId] of reply.tokenIds.entries())
        watch?.({ tokenId, logProb: logProbs[i], version: versions[i] });
      return asGeneration({ ...reply, logProbs }, versions, finishReason);
    } finally {
      sequence.busy = false;
    }
  }

  release(sequenceId: number): void {
    const sequence = this.#sequences.get(sequenceId);
    this.#sequences.delete(sequenceId);
    sequence?.released.abort(new Error(`sequence ${sequenceId} was released while it was being continued`));
  }

  /** Counts of the engines since the last call. */
  takeMetrics(): Record<string, number> {
    const metrics = { 'generation/retries': this.#retries, ...this.#pool.takeMetrics() };
    this.#retries = 0;
    return metrics;
  }

  /** Unloads the loaded weights from engines that still answer. */
  async close(): Promise<void> {
    for (const id of this.#sequences.keys()) this.release(id);
    await this.#pool.close();
  }

  /**
   * Asks one engine after another until one succeeds.
   * @returns its reply, and the version of each token
   */
  async #ask(
    call: Omit<EngineCall, 'weights'>,
    first: WeightVersion,
    sequence: OpenSequence,
  ): Promise<{ reply: EngineReply; versions: readonly number[] }> {
    const signal = AbortSignal.any([sequence.released.signal, this.#pool.closed]);
    let since = performance.now();
    for (;;) {
      const { replica, version } = await this.#pool.take(first, sequence.home, since, signal);
      const began = performance.now();
      try {
        const { url } = replica.client;
        const reply = await replica.client.generate({ ...call, weights: version.name }, signal);
        checkReply(reply, { ...call, weights: version.name }, this.#options.vocabularySize, url);
        const versions = this.#versionsOf(reply, version, url);
        replica.succeeded(
          versions.map(number => this.#pool.ageOf(number)),
          (performance.now() - began) / 1000,
        );
        sequence.home = replica;
        return { reply, versions };
      } catch (error) {
        signal.throwIfAborted();
        if (!(error instanceof EngineError) || isRefusal(error)) throw error;
        this.#retries++;
        if (error.busy) {
          replica.full();
          since = performance.now();
        } else this.#pool.failed(replica, error);
      } finally {
        replica.end(version.name);
      }
    }
  }

  /**
   * Version of each token.
   * @throws EngineError for weights that this run did not publish, because the engine was restarted
   */
  #versionsOf({ tokenIds, weights }: EngineReply, asked: WeightVersion, url: string): number[] {
    if (weights === undefined) return tokenIds.map(() => asked.number);
    const versions: number[] = [];
    for (const { version, start, end } of weights) {
      const number = this.#pool.numberOf(version);
      if (number === undefined) {
        throw new EngineError(
          `${url}: sampled with the weights "${version}", which this run did not load there`,
        );
      }
      if (start !== versions.length || end > tokenIds.length) break;
      while (versions.length < end) versions.push(number);
    }
    if (versions.length !== tokenIds.length) {
      throw new EngineError(
        `${url}: weight_versions must cover the ${tokenIds.length} tokens in their order`,
      );
    }
    return versions;
  }
}

/** @throws RangeError for an unknown name */
function named(grammar: NonNullable<GenerateRequest['grammar']>, grammars: Grammars): TokenGrammar {
  if (typeof grammar !== 'string') {
    if ('trie' in grammar) throw new RangeError('engines elsewhere take grammars over token ids only');
    return 'states' in grammar ? grammar : tokenGrammar(grammar);
  }
  if (Object.hasOwn(grammars, grammar)) return grammars[grammar];
  throw new RangeError(
    `no grammar is named ${grammar}; there are: ${Object.keys(grammars).join(', ') || 'none'}`,
  );
}

function asGeneration(
  { tokenIds, logProbs }: Pick<EngineReply, 'tokenIds' | 'logProbs'>,
  versions: readonly number[],
  finishReason: Generation['finishReason'],
): Generation {
  return {
    tokenIds: Int32Array.from(tokenIds),
    logProbs: Float32Array.from(logProbs),
    versions: Int32Array.from(versions.slice(0, tokenIds.length)),
    finishReason,
  };
}
