import { onAbort } from '../../../shared/closing.ts';
import type { JsonObject } from '../../../shared/json.ts';
import type { Generation, Generator, SamplingSettings, StreamedToken } from '../../generation/generation.ts';
import type { TextGrammar, TokenGrammar } from '../../generation/grammar.ts';
import type { Tokenizer } from '../../models/tokenizer/tokenizer.ts';
import type { PromptEncoder } from './prompt-encoder.ts';

/** A prompt to continue. */
export interface TokenRequest {
  readonly promptIds: readonly number[];
  readonly sampling: SamplingSettings;
  readonly seed: number;
  readonly grammar?: TokenGrammar | TextGrammar;
  /** Most probable tokens to report at each position; absent: none. */
  readonly topLogProbs?: number;
}

/** A model that answers the requests of OpenAI's API: a served policy, or one that is trained with an agent. */
export interface LanguageModel {
  readonly name: string;
  readonly tokenizer: Tokenizer;
  /** Tokenizes prompts of any length with it, and renders messages by its template. */
  readonly encoder: PromptEncoder;
  /** Longest prompt and response together, in tokens. */
  readonly maxSequenceLength: number;
  /** Ids of a prompt are below this. */
  readonly vocabularySize: number;
  /** Tokens that end a response unless the request ignores them. */
  readonly stopTokenIds: readonly number[];
  /** Identity of the weights under this name, e.g. their version; clients read it as `system_fingerprint`. */
  readonly fingerprint: string;

  /**
   * Samples a continuation.
   * @param signal aborted when the client disconnects: the work ends and its result is ignored
   * @param watch called with each token soon after it is sampled
   */
  generate(
    request: TokenRequest,
    signal: AbortSignal,
    watch?: (token: StreamedToken) => void,
  ): Promise<Generation>;

  /**
   * log-probabilities of the tokens given those before them, 0 for the first; absent where scoring is not supported.
   */
  score?(tokenIds: readonly number[]): Promise<Float32Array>;

  /**
   * The automaton of the JSON texts that fit a schema; absent where responses cannot be constrained.
   * @throws ApiError 400 for a schema that is not supported
   */
  jsonGrammar?(schema: JsonObject): Promise<TextGrammar>;
}

/**
 * Finished sequences that may still have a cache. A prompt that begins with all tokens of one continues it, so a
 * conversation's next turn only costs its new tokens. (Where prompts only share a beginning, the engine shares blocks
 * by itself.)
 */
export class PrefixCache {
  readonly #most: number;
  readonly #release: (sequenceId: number) => void;
  readonly #entries = new Map<number, Int32Array>();

  /**
   * @param most sequences to keep
   * @param release called with each sequence that is no longer kept
   */
  constructor(most: number, release: (sequenceId: number) => void) {
    this.#most = most;
    this.#release = release;
  }

  get size(): number {
    return this.#entries.size;
  }

  /** Takes the longest sequence that the prompt continues; undefined where there is none. */
  take(prompt: readonly number[]): { readonly sequenceId: number; readonly length: number } | undefined {
    let found: { readonly sequenceId: number; readonly length: number } | undefined;
    for (const [sequenceId, tokens] of this.#entries) {
      const { length } = tokens;
      if (length < prompt.length && length > (found?.length ?? -1) && begins(prompt, tokens))
        found = { sequenceId, length };
    }
    if (found) this.#entries.delete(found.sequenceId);
    return found;
  }

  /**
   * Generates after the longest kept sequence that the prompt continues, or in a new one.
   * @param fresh number of a new sequence
   * @returns the generation with its sequence, which the caller keeps or releases
   */
  async generate(
    policy: Pick<Generator, 'generate'>,
    { promptIds, ...request }: TokenRequest,
    fresh: () => number,
    signal: AbortSignal,
    watch?: (token: StreamedToken) => void,
  ): Promise<{ generation: Generation; sequenceId: number; tokens: Int32Array }> {
    const known = this.take(promptIds);
    const sequenceId = known?.sequenceId ?? fresh();
    const release = () => this.#release(sequenceId);
    using _abort = onAbort(signal, release);
    try {
      const append = known === undefined ? promptIds : promptIds.slice(known.length);
      const generation = await policy.generate({ sequenceId, append, ...request }, watch);
      signal.throwIfAborted();
      const tokens = new Int32Array(promptIds.length + generation.tokenIds.length);
      tokens.set(promptIds);
      tokens.set(generation.tokenIds, promptIds.length);
      return { generation, sequenceId, tokens };
    } catch (error) {
      release();
      throw error;
    }
  }

  /** Keeps a sequence; beyond the limit the oldest is released. */
  keep(sequenceId: number, tokens: Int32Array): void {
    this.#entries.set(sequenceId, tokens);
    if (this.#entries.size <= this.#most) return;
    const [oldest] = this.#entries.keys();
    this.#entries.delete(oldest);
    this.#release(oldest);
  }

  clear(): void {
    for (const sequenceId of this.#entries.keys()) this.#release(sequenceId);
    this.#entries.clear();
  }
}

/** True if a prompt begins with these tokens. */
function begins(prompt: readonly number[], tokens: Int32Array): boolean {
  // The end differs more often than the beginning.
  for (let i = tokens.length - 1; i >= 0; i--) if (prompt[i] !== tokens[i]) return false;
  return true;
}
