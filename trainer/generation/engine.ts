import { Random } from '../../shared/random.ts';
import type { DecoderConfig } from '../models/config.ts';
import { SequenceCache } from './cache/sequence-cache.ts';
import {
  type EngineStatistics,
  type GenerateRequest,
  type Generation,
  MAX_TOP_LOG_PROBS,
  type StreamedToken,
} from './generation.ts';
import { type ResponseGrammar, SparseGrammarMatcher, sparseGrammar, TextGrammarMatcher } from './grammar.ts';
import { type Encode, LogitsProcessor } from './logits-processor.ts';
import type { DecodeProgram, DecodeProgramKind, DecodeProgramOptions } from './programs/decode-program.ts';
import { DeviceProgram } from './programs/device-program.ts';
import { KERNELS_HIDDEN_SIZE, KernelProgram, kernelsCompute } from './programs/kernel-program.ts';
import { SegmentProgram } from './programs/segment-program.ts';
import { checkSampling, type SampledToken, Sampler } from './sampling.ts';
import { ActiveRequest, type Decode, Sequence, StopStrings } from './sequence.ts';

/**
 * Default rows of a tick: few for small models, because with fewer sequences at a time more of their cache stays close
 * to the processor; more for large ones, because every tick reads their weights from memory.
 */
function defaultMaxRows({ hiddenSize }: DecoderConfig): number {
  return hiddenSize <= 256 ? 128 : 512;
}

export interface EngineOptions extends DecodeProgramOptions {
  /** Kind of the model's program; by its size when absent. */
  readonly program?: DecodeProgramKind;
  readonly maxRows?: number;
  /** Text of tokens; stop strings need it. */
  readonly decode?: Decode;
  /** Token ids of a text; bad words need it. */
  readonly encode?: Encode;
}

/**
 * The program and the cache of a model for an engine.
 * @throws RangeError for `device` on a runtime without device memory, and `kernels` for a family that they do not
 * support
 */
function createProgram(options: EngineOptions, maxRows: number): DecodeProgram {
  const { config, runtime } = options;
  const small = config.hiddenSize <= KERNELS_HIDDEN_SIZE;
  const onProcessor = small && kernelsCompute(config) ? 'kernels' : 'segments';
  const { program = runtime.memory === undefined ? onProcessor : 'device' } = options;
  if (program === 'device') {
    if (runtime.memory === undefined) {
      throw new RangeError(`the runtime ${runtime.name} has no device memory: choose kernels or segments`);
    }
    return new DeviceProgram(options, runtime.memory, maxRows);
  }
  return program === 'segments' ? new SegmentProgram(options, maxRows) : new KernelProgram(options, maxRows);
}

/**
 * Continuous batching. Every tick takes the next work of open requests as rows of one batch without padding (decode:
 * the sampled token; prefill: a chunk of a prompt). The oldest requests come first: decoding ones continue, and prompts
 * of younger ones fill up the batch. Requests come and go between ticks. A sequence keeps its KV cache between requests
 * until it is released, or evicted because another needs the memory; then its tokens are prefilled again. Prefix
 * caching: a common beginning of sequences is prefilled once. A request's tokens only depend on its sequence, settings
 * and seed, not on the rest of the batch.
 */
export class GenerationEngine {
  readonly statistics: EngineStatistics = { ticks: 0, rows: 0, sampled: 0, evictions: 0, shared: 0 };
  version = 0;
  readonly #options: EngineOptions;
  readonly #program: DecodeProgram;
  /** Samples if the program does not. */
  readonly #sampler: Sampler;
  readonly #maxRows: number;
  readonly #sequences = new Map<number, Sequence>();
  readonly #waiting: ActiveRequest[] = [];
  readonly #active: ActiveRequest[] = [];
  readonly #sequenceCache: SequenceCache;
  readonly #headRows: Int32Array;
  readonly #headRequests: ActiveRequest[] = [];

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#maxRows = options.maxRows ?? defaultMaxRows(options.config);
    this.#program = createProgram(options, this.#maxRows);
    this.#sampler = new Sampler(options.config.vocabularySize);
    this.#headRows = new Int32Array(this.#maxRows);
    this.#sequenceCache = new SequenceCache({
      cache: this.#program.blockTable,
      maxOpenSequences: options.maxOpenSequences,
      sequences: this.#sequences,
      waiting: this.#waiting,
      statistics: this.statistics,
    });
  }

  /** True while a request is waiting or in progress. */
  get busy(): boolean {
    return this.#active.length > 0 || this.#waiting.length > 0;
  }

  /**
   * Accepts a request; {@link tick} does the work. If `append` does not fit the context with one token to spare, the
   * request ends at once with reason `context`, and nothing is appended.
   * @param watch called with each token when it is sampled
   * @throws RangeError when the request is malformed, or its sequence is already in progress
   */
  submit(
    request: GenerateRequest,
    finish: (generation: Generation) => void,
    fail: (error: Error) => void,
    watch?: (token: StreamedToken) => void,
  ): void {
    const { append, sampling, topLogProbs } = request;
    const { maxSequenceLength, config } = this.#options;
    checkSampling(sampling);
    checkTopLogProbs(topLogProbs);
    const grammar = this.#grammar(request.grammar);
    const { stopStrings = [] } = sampling;
    const stops = stopStrings.length === 0 ? null : new StopStrings(stopStrings, this.#options.decode);
    const known = this.#sequences.get(request.sequenceId);
    const sequence = known ?? new Sequence(request.sequenceId);
    if (sequence.request !== null) {
      throw new RangeError(
        `sequence ${sequence.id} is being continued already: await it before the next request`,
      );
    }
    if (sequence.length + append.length === 0) {
      throw new RangeError(
        `sequence ${sequence.id} is empty: its first request must append at least one token`,
      );
    }
    for (let i = 0; i < append.length; i++) {
      const id = append[i];
      if (!(id >= 0 && id < config.vocabularySize)) {
        throw new RangeError(
          `token id ${id} at ${i} of append is outside the vocabulary of ${config.vocabularySize}`,
        );
      }
    }
    const room = Math.max(0, maxSequenceLength - sequence.length - append.length);
    const context = contextOf(sequence, append);
    const active = new ActiveRequest({
      sequence,
      sampling,
      rng: Random.fromSeed(request.seed),
      grammar,
      processor: LogitsProcessor.create(sampling, context, config.vocabularySize, this.#options.encode),
      stops,
      room,
      values: this.#options.valueHead,
      topLogProbs,
      watch,
      finish,
      fail,
    });
    if (room === 0) {
      active.finish('context');
      return;
    }
    this.#sequences.set(sequence.id, sequence);
    for (let i = 0; i < append.length; i++) sequence.push(append[i]);
    sequence.request = active;
    this.#waiting.push(active);
  }

  /** Forgets a sequence; a request still open on it fails. */
  release(sequenceId: number): void {
    const sequence = this.#sequences.get(sequenceId);
    if (sequence === undefined) return;
    const { request } = sequence;
    if (request !== null) {
      remove(this.#waiting, request);
      remove(this.#active, request);
      request.fail(new Error(`sequence ${sequenceId} was released while it was being continued`));
    }
    this.#sequenceCache.drop(sequence);
    this.#sequences.delete(sequenceId);
  }

  /**
   * Reports new weights. Cache entries of the old ones are recomputed when they are needed, or kept with
   * `keepStaleCache`. Tokens are then sampled from a mixture of old states and new weights; their log-probabilities are
   * those of the mixture.
   */
  weightsChanged(version: number, keepStaleCache = false): void {
    this.version = version;
    this.#program.weightsChanged();
    this.#sequenceCache.weightsChanged(keepStaleCache);
  }

  /** Fails every open request, after an error that leaves the engine's batch in an unknown state. */
  failAll(error: Error): void {
    const requests = [...this.#waiting.splice(0), ...this.#active.splice(0)];
    this.#sequenceCache.distrust(requests.map(({ sequence }) => sequence));
    for (const request of requests) {
      request.sequence.request = null;
      request.fail(error);
    }
  }

  /** One pass of the model over the next work of all admitted requests. */
  async tick(): Promise<void> {
    this.#admit();
    const { ids, sampler } = this.#program;
    const headRequests = this.#headRequests;
    headRequests.length = 0;
    let rows = 0;
    let runs = 0;
    let logits = false;
    for (const { sequence } of this.#active) {
      this.#sequenceCache.catchUp(sequence);
      const count = Math.min(sequence.length - sequence.cached, this.#maxRows - rows);
      if (count === 0) break;
      this.#program.setRun(runs++, rows, count, sequence.cached, sequence.slot);
      for (let i = 0; i < count; i++) ids[rows + i] = sequence.tokens[sequence.cached + i];
      rows += count;
      this.#sequenceCache.advance(sequence, count);
      sequence.lastUsed = this.statistics.ticks;
      if (sequence.cached < sequence.length) break;
      const row = headRequests.length;
      this.#headRows[row] = rows - 1;
      headRequests.push(sequence.request!);
      if (sampler === null) continue;
      if (sampler.handles(sequence.request!)) sampler.set(row, sequence.request!);
      else {
        sampler.skip(row, row + 1);
        logits = true;
      }
    }
    if (rows === 0) return;
    const { version } = this;
    await this.#program.run(rows, runs, this.#headRows, headRequests.length, logits);
    this.statistics.ticks++;
    this.statistics.rows += rows;
    // If the weights changed during the pass, its cache entries are already invalid.
    for (let row = 0; row < headRequests.length; row++) this.#sample(headRequests[row], row, version);
  }

  #sample(request: ActiveRequest, row: number, version: number): void {
    const { sequence } = request;
    if (sequence.request !== request) return;
    const { values, valuesStride, sampler } = this.#program;
    const { topLogProbs } = request;
    let done: boolean;
    try {
      const here = sampler === null || !sampler.handles(request);
      const { token, logProb } = here ? this.#sampleFromLogits(request, row) : sampler.get(row);
      this.statistics.sampled++;
      const top = here && topLogProbs !== undefined ? this.#sampler.top(token, topLogProbs) : undefined;
      done = request.take(token, logProb, values[row * valuesStride], version, top);
    } catch (error) {
      request.fail(error as Error);
      done = true;
    }
    if (!done) return;
    sequence.request = null;
    remove(this.#active, request);
  }

  #sampleFromLogits(request: ActiveRequest, row: number): SampledToken {
    const { sampling, rng, grammar, grammarState, processor } = request;
    const { logits, logitsStride } = this.#program;
    const allowed = grammar === null ? null : grammar.allowedIn(grammarState);
    return this.#sampler.sample(logits, row * logitsStride, sampling, rng, { allowed, processor });
  }

  /**
   * Admits waiting requests, first come first served, while there are slots and cache blocks for their longest
   * response.
   */
  #admit(): void {
    while (this.#waiting.length > 0) {
      const request = this.#waiting[0];
      if (!this.#sequenceCache.reserve(request.sequence, request.limit)) return;
      this.#waiting.shift();
      this.#active.push(request);
    }
  }

  #grammar(name: GenerateRequest['grammar']): ResponseGrammar | null {
    if (name === undefined) return null;
    if (typeof name !== 'string') {
      const { vocabularySize } = this.#options.config;
      if ('trie' in name) return new TextGrammarMatcher(name, vocabularySize);
      const sparse = 'states' in name ? sparseGrammar('of the request', name, vocabularySize) : name;
      return new SparseGrammarMatcher(sparse, vocabularySize);
    }
    const grammar = this.#options.grammars?.get(name);
    if (grammar === undefined) {
      const known = [...(this.#options.grammars?.keys() ?? [])].join(', ') || 'none';
      throw new RangeError(`no grammar is named ${name}; the policy was given: ${known}`);
    }
    return grammar;
  }
}

/** The tokens before a response. */
function contextOf({ tokens, length }: Sequence, append: ArrayLike<number>): Int32Array {
  const context = new Int32Array(length + append.length);
  context.set(tokens.subarray(0, length));
  context.set(append, length);
  return context;
}

function checkTopLogProbs(count: number | undefined): void {
  if (count === undefined || (Number.isInteger(count) && count >= 0 && count <= MAX_TOP_LOG_PROBS)) return;
  throw new RangeError(`topLogProbs must be an integer from 0 to ${MAX_TOP_LOG_PROBS}, got ${count}`);
}

function remove<T>(list: T[], item: T): void {
  const index = list.indexOf(item);
  if (index !== -1) list.splice(index, 1);
}
