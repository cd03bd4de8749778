import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import type { JsonObject } from '../../shared/json.ts';
import { SerialQueue } from '../../shared/scheduling/serial-queue.ts';
import type { Generation, StreamedToken } from '../generation/generation.ts';
import type { TextGrammar } from '../generation/grammar.ts';
import { NOTHING_LEFT } from '../generation/sampling.ts';
import type { DecoderConfig } from '../models/config.ts';
import { readModelTextIfThere } from '../models/files/model-file.ts';
import { loraSpecs } from '../models/parameters.ts';
import {
  endTokenIds,
  GENERATION_CONFIG_FILE,
  readTokenizerFiles,
  tokenizerFromFiles,
} from '../models/tokenizer/load.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { checkWeights } from '../policy/checkpoint/checkpoint.ts';
import {
  findModel,
  findTokenizer,
  isAdapterFolder,
  readAdapterConfig,
  readAdapterWeights,
  readConfig,
} from '../policy/checkpoint/model-folder.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../policy/local-policy.ts';
import type { ModelState } from '../policy/options.ts';
import { PLACEHOLDER_TURN, textAfterPlaceholder } from '../prompts/chat.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { JsonGrammars } from './grammar/json-grammars.ts';
import { ApiError, badRequest, modelNotFound } from './openai/errors.ts';
import { type LanguageModel, PrefixCache, type TokenRequest } from './openai/language-model.ts';
import { PromptEncoder, TextLimitError } from './openai/prompt-encoder.ts';

/** Most policies of unloaded adapters that are kept for the next ones: opening one starts threads. */
const MAX_SPARE = 2;
/** Settings of a policy that only generates. */
const PLAYED = { seed: 0, valueHead: false, generationOnly: true } as const;

export interface ModelsOptions {
  /** Folder of a model, or of an adapter. */
  readonly folder: string;
  readonly name: string;
  /** Folder of the base, if the model is an adapter. */
  readonly base?: string;
  /** Settings of the policies. */
  readonly policy: Pick<
    LocalPolicyOptions,
    | 'workers'
    | 'threads'
    | 'runtime'
    | 'precision'
    | 'basePrecision'
    | 'maxSequenceLength'
    | 'maxOpenSequences'
  >;
  /** Adapters that can be loaded at once. */
  readonly maxAdapters: number;
}

/** The models of a server: the one it was started with, and adapters that are loaded and unloaded. */
export class Models {
  readonly #options: ModelsOptions;
  readonly #shared: SharedParts;
  readonly #models = new Map<string, ServedModel>();
  readonly #base: ServedModel;
  readonly #baseFolder: string;
  readonly #spare: LocalPolicy[] = [];
  /** Loads and unloads happen one after the other. */
  readonly #queue = new SerialQueue();

  private constructor(options: ModelsOptions, policy: LocalPolicy, shared: SharedParts, baseFolder: string) {
    this.#options = options;
    this.#shared = shared;
    this.#baseFolder = baseFolder;
    this.#base = new ServedModel(options.name, options.folder, policy, shared);
  }

  /** @throws Error, ModelConfigError or SafetensorsError for a model that cannot be served */
  static async open(options: ModelsOptions): Promise<Models> {
    const { folder, base } = options;
    const place = await findModel(folder, base);
    const tokenizerFolder = await findTokenizer(folder, base);
    const files = await readTokenizerFiles(tokenizerFolder);
    const config = await readConfig(place.base);
    await checkWeights(place.base, config);
    const encoder = new PromptEncoder({ files });
    try {
      // First in the encoder's process, which limits the building of the tokenizer.
      await encoder.tryTexts([]);
      const tokenizer = tokenizerFromFiles(files, tokenizerFolder);
      const named = [...(await generationStops(place.base)), ...(await generationStops(folder))];
      const stops = [...named, ...(await closingTokens(tokenizer, encoder))];
      const policy = await LocalPolicy.create({ ...options.policy, ...PLAYED, model: folder, base, files });
      const ids = [policy.config.eosTokenId, tokenizer.eosTokenId, ...stops].flat();
      const stopTokenIds = [...new Set(ids.filter(id => id !== null && id !== undefined))];
      const grammars = new JsonGrammars(tokenizer, policy.vocabularySize, stopTokenIds);
      const keptSequences = options.policy.maxOpenSequences ?? 0;
      const shared = { tokenizer, encoder, stopTokenIds, grammars, keptSequences };
      return new Models(options, policy, shared, place.base);
    } catch (error) {
      await encoder.close();
      throw error;
    }
  }

  /** All models; the first is the one that the server was started with. */
  get all(): readonly ServedModel[] {
    return [this.#base, ...this.#models.values()];
  }

  get base(): ServedModel {
    return this.#base;
  }

  /**
   * @param name absent: the model that the server was started with.
   * @throws ApiError 404
   */
  named(name: string | undefined): ServedModel {
    if (name === undefined || name === this.#base.name) return this.#base;
    const model = this.#models.get(name);
    if (model !== undefined) return model;
    throw modelNotFound(
      name,
      this.all.map(known => known.name),
    );
  }

  /**
   * Loads an adapter of the base, or another model of the same shape, under a name. Open requests are not affected.
   * @throws ApiError 400 for a name that is taken, too many adapters, or a folder that does not fit
   */
  load(name: string, folder: string): Promise<ServedModel> {
    return this.#queue.run(async () => {
      if (name === this.#base.name || this.#models.has(name)) {
        throw badRequest(
          `the adapter ${name} is loaded already: unload it first, or use another name`,
          'lora_name',
        );
      }
      if (this.#models.size >= this.#options.maxAdapters) {
        throw badRequest(
          `${this.#models.size} adapters are loaded, the limit (--max-adapters): unload one first`,
          'lora_name',
        );
      }
      let policy: LocalPolicy;
      try {
        policy = await this.#opened(folder);
      } catch (error) {
        throw badRequest(
          `the adapter in ${folder} cannot be loaded: ${(error as Error).message}`,
          'lora_path',
        );
      }
      const model = new ServedModel(name, folder, policy, this.#shared);
      this.#models.set(name, model);
      return model;
    });
  }

  /**
   * Unloads an adapter. Its open requests finish; new ones do not find it.
   * @throws ApiError 404 if it does not exist, 400 for the model that the server was started with
   */
  async unload(name: string): Promise<void> {
    if (name === this.#base.name)
      throw badRequest(`${name} is the model itself, not an adapter`, 'lora_name');
    const model = this.#models.get(name);
    if (model === undefined) {
      throw new ApiError(404, `no adapter ${name} is loaded`, {
        param: 'lora_name',
        code: 'model_not_found',
      });
    }
    this.#models.delete(name);
    void model.retire().then(policy =>
      this.#queue.run(async () => {
        if (this.#spare.length < MAX_SPARE) this.#spare.push(policy);
        else await policy.close();
      }),
    );
  }

  async close(): Promise<void> {
    await this.#queue.idle;
    await Promise.all([
      this.#shared.encoder.close(),
      ...this.all.map(model => model.policy.close()),
      ...this.#spare.map(spare => spare.close()),
    ]);
  }

  /** A policy with the weights in a folder: a spare one of the same shape, or a new one that shares the base. */
  async #opened(folder: string): Promise<LocalPolicy> {
    const config = await this.#configOf(folder);
    const index = this.#spare.findIndex(spare => isDeepStrictEqual(spare.config, config));
    if (index >= 0) {
      const [spare] = this.#spare.splice(index, 1);
      try {
        await spare.load(folder);
        return spare;
      } catch (error) {
        await spare.close();
        throw error;
      }
    }
    const model = config.lora === undefined ? folder : await this.#adapted(folder, config);
    const { files } = this.#shared.tokenizer;
    return LocalPolicy.create({ ...this.#options.policy, ...PLAYED, model, files });
  }

  /** @throws Error for a folder that contains neither an adapter nor a model of the same vocabulary */
  async #configOf(folder: string): Promise<DecoderConfig> {
    if (await isAdapterFolder(folder)) {
      const { lora: _, ...config } = this.#base.policy.config;
      return { ...config, lora: (await readAdapterConfig(folder)).lora };
    }
    const config = await readConfig(folder);
    if (config.vocabularySize === this.#base.vocabularySize) return config;
    throw new RangeError(
      `its vocabulary has ${config.vocabularySize} tokens, that of ${this.#base.name} has ${this.#base.vocabularySize}`,
    );
  }

  /** The adapter in a folder next to the weights of the base, which are in memory once. */
  async #adapted(folder: string, config: DecoderConfig): Promise<ModelState> {
    const { base, weights } = await this.#base.policy.weightsNow();
    const adapter = new ParameterStore(loraSpecs(config, config.lora!));
    await readAdapterWeights(folder, config, adapter);
    return {
      config,
      folders: { base: this.#baseFolder, adapter: folder },
      base: base ?? weights,
      weights: adapter,
    };
  }
}

/** Tokens that end a response by the folder's `generation_config.json`; none where it has no such file. */
async function generationStops(folder: string): Promise<readonly number[]> {
  const text = await readModelTextIfThere(join(folder, GENERATION_CONFIG_FILE));
  return text === undefined ? [] : endTokenIds({ files: { [GENERATION_CONFIG_FILE]: text } });
}

/** The special token after a response in the chat template, if there is one. */
async function closingTokens(tokenizer: Tokenizer, encoder: PromptEncoder): Promise<number[]> {
  if (tokenizer.chatTemplate === undefined) return [];
  const text = await encoder.render(PLACEHOLDER_TURN, { addGenerationPrompt: false }).catch(error => {
    throw new Error(`the chat template cannot be used: ${(error as Error).message}`, { cause: error });
  });
  const closing = textAfterPlaceholder(text);
  const ids = await encoder.encode(closing, closing.length);
  return (ids ?? []).slice(0, 1).filter(id => tokenizer.decode([id], { skipSpecial: true }) === '');
}

/** Parts that all models of a server share. */
interface SharedParts {
  readonly tokenizer: Tokenizer;
  readonly encoder: PromptEncoder;
  readonly stopTokenIds: readonly number[];
  readonly grammars: JsonGrammars;
  /** Most finished sequences of a model that keep a cache. */
  readonly keptSequences: number;
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

  /** @param folder of the weights */
  constructor(name: string, folder: string, policy: LocalPolicy, shared: SharedParts) {
    this.name = name;
    this.folder = folder;
    this.policy = policy;
    this.tokenizer = shared.tokenizer;
    this.encoder = shared.encoder;
    this.stopTokenIds = shared.stopTokenIds;
    this.fingerprint = `${name}@${policy.version}`;
    this.#grammars = shared.grammars;
    this.#kept = new PrefixCache(shared.keptSequences, id => policy.release(id));
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
