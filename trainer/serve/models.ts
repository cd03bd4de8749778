import { isDeepStrictEqual } from 'node:util';
import { SerialQueue } from '../../shared/scheduling/serial-queue.ts';
import type { DecoderConfig } from '../models/config.ts';
import { loraSpecs } from '../models/parameters.ts';
import { readTokenizerFiles, tokenizerFromFiles } from '../models/tokenizer/load.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import {
  isAdapterFolder,
  readAdapterConfig,
  readAdapterWeights,
} from '../policy/checkpoint/adapter-folder.ts';
import { checkWeights } from '../policy/checkpoint/checkpoint.ts';
import { findModel, findTokenizer, readConfig } from '../policy/checkpoint/model-folder.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../policy/local-policy.ts';
import type { ModelState } from '../policy/options.ts';
import { PLACEHOLDER_TURN, textAfterPlaceholder } from '../prompts/chat.ts';
import { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import { generationStops } from './find-model.ts';
import { JsonGrammars } from './grammar/json-grammars.ts';
import { ApiError, badRequest, modelNotFound } from './openai/errors.ts';
import { PromptEncoder } from './openai/prompt-encoder.ts';
import { ServedModel } from './served-model.ts';

/** Most policies of unloaded adapters that are kept for the next ones: opening one starts threads. */
const MAX_SPARE = 2;

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
  readonly #tokenizer: Tokenizer;
  readonly #encoder: PromptEncoder;
  readonly #stopTokenIds: readonly number[];
  readonly #grammars: JsonGrammars;
  readonly #models = new Map<string, ServedModel>();
  readonly #base: ServedModel;
  readonly #baseFolder: string;
  readonly #spare: LocalPolicy[] = [];
  /** Loads and unloads happen one after the other. */
  readonly #queue = new SerialQueue();

  private constructor(
    options: ModelsOptions,
    policy: LocalPolicy,
    tokenizer: Tokenizer,
    encoder: PromptEncoder,
    stopTokenIds: readonly number[],
    baseFolder: string,
  ) {
    this.#options = options;
    this.#tokenizer = tokenizer;
    this.#encoder = encoder;
    this.#stopTokenIds = stopTokenIds;
    this.#baseFolder = baseFolder;
    this.#grammars = new JsonGrammars(tokenizer, policy.vocabularySize, stopTokenIds);
    this.#base = this.#served(options.name, options.folder, policy);
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
      const policy = await LocalPolicy.create({
        ...options.policy,
        model: folder,
        base,
        seed: 0,
        valueHead: false,
        generationOnly: true,
        files,
      });
      const ids = [policy.config.eosTokenId, tokenizer.eosTokenId, ...stops].flat();
      const known = [...new Set(ids.filter(id => id !== null && id !== undefined))];
      return new Models(options, policy, tokenizer, encoder, known, place.base);
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
      const model = this.#served(name, folder, policy);
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
      this.#encoder.close(),
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
    return LocalPolicy.create({
      ...this.#options.policy,
      model,
      seed: 0,
      valueHead: false,
      generationOnly: true,
      files: this.#tokenizer.files,
    });
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

  #served(name: string, folder: string, policy: LocalPolicy): ServedModel {
    return new ServedModel({
      name,
      folder,
      policy,
      tokenizer: this.#tokenizer,
      encoder: this.#encoder,
      stopTokenIds: this.#stopTokenIds,
      keptSequences: this.#options.policy.maxOpenSequences ?? 0,
      grammars: this.#grammars,
    });
  }
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
