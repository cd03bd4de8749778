import type { JsonObject } from '../../shared/json.ts';
import type { Generation, StreamedToken } from '../generation/generation.ts';
import { NOTHING_LEFT } from '../generation/sampling.ts';
import type { TextGrammar } from '../generation/text-grammar.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import type { LocalPolicy } from '../policy/local-policy.ts';
import type { JsonGrammars } from './grammar/json-grammars.ts';
import { badRequest } from './openai/errors.ts';
import { type LanguageModel, PrefixCache, type TokenRequest } from './openai/language-model.ts';
import { type PromptEncoder, TextLimitError } from './openai/prompt-encoder.ts';

export interface ServedModelParts {
  readonly name: string;
  /** Folder of the weights. */
  readonly folder: string;
  readonly policy: LocalPolicy;
  readonly tokenizer: Tokenizer;
  readonly encoder: PromptEncoder;
  readonly stopTokenIds: readonly number[];
  /** Most finished sequences that keep a cache. */
  readonly keptSequences: number;
  readonly grammars: JsonGrammars;
}

/** A named policy that answers the requests of OpenAI's API with the trainer's own sampling. */
export class ServedModel implements LanguageModel {
  readonly name: string;
  readonly folder: string;
  readonly policy: LocalPolicy;
  readonly tokenizer: Tokenizer;
  readonly encoder: PromptEncoder;
  readonly stopTokenIds: readonly number[];
  readonly fingerprint: string;
  readonly created = Math.floor(Date.now() / 1000);
  readonly #grammars: JsonGrammars;
  readonly #kept: PrefixCache;
  #nextSequence = 0;
  #open = 0;
  #onIdle: (() => void) | null = null;

  constructor(parts: ServedModelParts) {
    const { policy, name } = parts;
    this.name = name;
    this.folder = parts.folder;
    this.policy = policy;
    this.tokenizer = parts.tokenizer;
    this.encoder = parts.encoder;
    this.stopTokenIds = parts.stopTokenIds;
    this.fingerprint = `${name}@${policy.version}`;
    this.#grammars = parts.grammars;
    this.#kept = new PrefixCache(parts.keptSequences, id => policy.release(id));
  }

  get maxSequenceLength(): number {
    return this.policy.maxSequenceLength;
  }

  get vocabularySize(): number {
    return this.policy.vocabularySize;
  }

  /** Responses that are being sampled. */
  get open(): number {
    return this.#open;
  }

  async generate(
    request: TokenRequest,
    signal: AbortSignal,
    watch?: (token: StreamedToken) => void,
  ): Promise<Generation> {
    signal.throwIfAborted();
    await this.#tryBadWords(request.sampling.badWords ?? [], signal);
    this.#open++;
    try {
      const fresh = () => this.#nextSequence++;
      const made = await this.#kept.generate(this.policy, request, fresh, signal, watch);
      this.policy.park(made.sequenceId);
      this.#kept.keep(made.sequenceId, made.tokens);
      return made.generation;
    } catch (error) {
      throw (error as Error).message === NOTHING_LEFT ? badRequest(NOTHING_LEFT) : error;
    } finally {
      this.#open--;
      if (this.#open === 0) this.#onIdle?.();
    }
  }

  /**
   * A worker tokenizes them again without a limit.
   * @throws ApiError 400 where the tokenizer takes too long for one
   */
  async #tryBadWords(words: readonly string[], signal: AbortSignal): Promise<void> {
    if (words.length === 0) return;
    const texts = words.flatMap(word => [word.trimStart(), ` ${word.trimStart()}`]);
    await this.encoder.tryTexts(texts, signal).catch(error => {
      if (!(error instanceof TextLimitError)) throw error;
      throw badRequest(`the model's tokenizer ${error.message} for bad_words`, 'bad_words');
    });
  }

  async score(tokenIds: readonly number[]): Promise<Float32Array> {
    const mask = new Uint8Array(tokenIds.length).fill(1);
    mask[0] = 0;
    if (tokenIds.length < 2) return new Float32Array(tokenIds.length);
    const [{ logProbs }] = await this.policy.score([{ tokenIds: Int32Array.from(tokenIds), lossMask: mask }]);
    return logProbs;
  }

  jsonGrammar(schema: JsonObject): Promise<TextGrammar> {
    return this.#grammars.of(schema);
  }

  /** Resolves when nothing is being sampled; then releases the policy and its caches. */
  async retire(): Promise<LocalPolicy> {
    if (this.#open > 0) {
      await new Promise<void>(resolve => {
        this.#onIdle = resolve;
      });
    }
    this.#kept.clear();
    return this.policy;
  }
}
