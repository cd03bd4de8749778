import type { Random } from '../../shared/random.ts';
import type { Generation, SamplingSettings, StreamedToken, TopLogProbs } from './generation.ts';
import type { ResponseGrammar } from './grammar.ts';
import type { LogitsProcessor } from './logits-processor.ts';

/** A sequence in the engine: always with its tokens, and with its cache while it has a slot. */
export class Sequence {
  readonly id: number;
  tokens = new Int32Array(64);
  length = 0;
  /** Number of positions with keys and values in the cache under the present weights. */
  cached = 0;
  /** Index of its list of blocks; −1 without a cache. */
  slot = -1;
  /** Number of its blocks. */
  blocks = 0;
  /** Under which of the engine's weights its cache was begun. */
  generation = 0;
  /** Number of the engine's tick it was last used in. */
  lastUsed = 0;
  request: ActiveRequest | null = null;

  constructor(id: number) {
    this.id = id;
  }

  push(token: number): void {
    if (this.length === this.tokens.length) {
      const larger = new Int32Array(2 * this.length);
      larger.set(this.tokens);
      this.tokens = larger;
    }
    this.tokens[this.length++] = token;
  }
}

/** A request in progress, with its samples so far. */
export class ActiveRequest {
  readonly sequence: Sequence;
  readonly sampling: SamplingSettings;
  readonly rng: Random;
  readonly grammar: ResponseGrammar | null;
  readonly processor: LogitsProcessor | null;
  grammarState: number;
  /** Most tokens to sample: the request's limit or the rest of the context. */
  readonly limit: number;
  readonly atLimit: 'length' | 'context';
  count = 0;
  readonly #stops: StopStrings | null;
  readonly #tokenIds: Int32Array;
  readonly #logProbs: Float32Array;
  readonly #values: Float32Array | null;
  readonly #versions: Int32Array;
  /** Most probable tokens to report; undefined for none. */
  readonly topLogProbs: number | undefined;
  readonly #top: TopLogProbs[] = [];
  readonly #watch: ((token: StreamedToken) => void) | undefined;
  readonly #finish: (generation: Generation) => void;
  readonly fail: (error: Error) => void;

  constructor(options: {
    readonly sequence: Sequence;
    readonly sampling: SamplingSettings;
    readonly rng: Random;
    readonly grammar: ResponseGrammar | null;
    readonly processor: LogitsProcessor | null;
    readonly stops: StopStrings | null;
    readonly room: number;
    readonly values: boolean;
    readonly topLogProbs: number | undefined;
    readonly watch: ((token: StreamedToken) => void) | undefined;
    readonly finish: (generation: Generation) => void;
    readonly fail: (error: Error) => void;
  }) {
    this.sequence = options.sequence;
    this.sampling = options.sampling;
    this.rng = options.rng;
    this.grammar = options.grammar;
    this.processor = options.processor;
    this.grammarState = options.grammar?.start ?? 0;
    this.limit = Math.min(options.sampling.maxNewTokens, options.room);
    this.atLimit = options.room < options.sampling.maxNewTokens ? 'context' : 'length';
    this.#stops = options.stops;
    this.#tokenIds = new Int32Array(this.limit);
    this.#logProbs = new Float32Array(this.limit);
    this.#values = options.values ? new Float32Array(this.limit) : null;
    this.#versions = new Int32Array(this.limit);
    this.topLogProbs = options.topLogProbs;
    this.#watch = options.watch;
    this.#finish = options.finish;
    this.fail = options.fail;
  }

  /** Adds a sampled token; returns true when it completes the request. */
  take(token: number, logProb: number, value: number, version: number, top?: TopLogProbs): boolean {
    const at = this.count++;
    this.#tokenIds[at] = token;
    this.#logProbs[at] = logProb;
    if (this.#values !== null) this.#values[at] = value;
    this.#versions[at] = version;
    if (top !== undefined) this.#top.push(top);
    this.#watch?.({ tokenId: token, logProb, version, ...(top === undefined ? {} : { top }) });
    this.sequence.push(token);
    this.processor?.take(token);
    if (this.grammar !== null) {
      this.grammarState = this.grammar.stateAfter(this.grammarState, token);
      if (this.grammar.isFinal(this.grammarState)) return this.finish('stop');
    }
    if (this.sampling.stopTokenIds.includes(token)) return this.finish('stop');
    if (this.#stops?.isIn(this.#tokenIds.subarray(0, this.count))) return this.finish('stop');
    return this.count < this.limit ? false : this.finish(this.atLimit);
  }

  finish(finishReason: Generation['finishReason']): true {
    const values = this.#values === null ? {} : { values: this.#values.slice(0, this.count) };
    this.#finish({
      tokenIds: this.#tokenIds.slice(0, this.count),
      logProbs: this.#logProbs.slice(0, this.count),
      ...values,
      versions: this.#versions.slice(0, this.count),
      ...(this.topLogProbs === undefined ? {} : { top: this.#top }),
      finishReason,
    });
    return true;
  }
}

/** Text of tokens, as a tokenizer decodes them. */
export type Decode = (tokenIds: Int32Array) => string;

/** Extra tokens to decode beyond the longest string: a decoder may treat the first ones specially. */
const MARGIN_TOKENS = 4;

/** Finds strings that end a response, even across tokens. */
export class StopStrings {
  readonly #strings: readonly string[];
  readonly #decode: Decode;
  readonly #tail: number;

  /** @throws RangeError for an empty string, or without a decoder */
  constructor(strings: readonly string[], decode: Decode | undefined) {
    if (decode === undefined) {
      throw new RangeError(
        'stop strings need a tokenizer: give the policy the files of one, or name stop tokens instead',
      );
    }
    if (strings.includes('')) throw new RangeError('a stop string must not be empty');
    this.#strings = strings;
    this.#decode = decode;
    // A token is at least one byte of text.
    this.#tail = Math.max(...strings.map(text => Buffer.byteLength(text))) + MARGIN_TOKENS;
  }

  /** True if the text of the last tokens contains one of the strings; called after every token. */
  isIn(tokenIds: Int32Array): boolean {
    const text = this.#decode(tokenIds.subarray(Math.max(0, tokenIds.length - this.#tail)));
    return this.#strings.some(string => text.includes(string));
  }
}
