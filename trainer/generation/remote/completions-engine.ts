import type { JsonObject } from '../../../shared/json.ts';
import {
  type EngineCall,
  type EngineClient,
  EngineError,
  EngineHttp,
  type EngineHttpOptions,
  type EngineReply,
} from './engine-client.ts';
import { samplingFields } from './sampling-fields.ts';

interface Completion {
  readonly token_ids?: readonly number[] | null;
  readonly logprobs?: { readonly token_logprobs?: readonly number[] } | null;
  readonly finish_reason?: string | null;
}

/** Replies of an engine for a name that is loaded already, or not at all. */
const LOADED = /already been loaded|loaded already/i;
const NOT_LOADED = /not (?:been |be )?(?:found|loaded)|no adapter/i;
/** Reply of vLLM for an adapter that it does not take, such as one of a greater rank; it comes with status 500. */
const UNFIT = /add_lora method failed|max_lora_rank/i;
/** Reply of FastAPI for a route that does not exist. */
const NO_ROUTE = /: Not Found$/;

/**
 * vLLM: `POST /v1/completions` with token ids in and out. It must run with `--logprobs-mode processed_logprobs --enable-lora`
 * and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`.
 */
export class CompletionsEngine implements EngineClient {
  readonly versioned = true;
  readonly #http: EngineHttp;
  #base: string | null = null;

  constructor(options: EngineHttpOptions) {
    this.#http = new EngineHttp(options);
  }

  get url(): string {
    return this.#http.url;
  }

  async probe(signal: AbortSignal): Promise<void> {
    await this.generate(PROBE, signal);
  }

  async generate(
    { promptIds, sampling, seed, weights }: EngineCall,
    signal: AbortSignal,
  ): Promise<EngineReply> {
    const { maxNewTokens, stopTokenIds, stopStrings = [] } = sampling;
    const { choices } = await this.#http.post(
      '/v1/completions',
      {
        model: weights ?? (await this.#baseName(signal)),
        prompt: promptIds,
        max_tokens: maxNewTokens,
        ...samplingFields(sampling),
        seed,
        stop_token_ids: stopTokenIds,
        ignore_eos: true,
        ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
        logprobs: 0,
        return_token_ids: true,
      },
      signal,
    );
    const choice = Array.isArray(choices) ? (choices[0] as Completion | undefined) : undefined;
    const { token_ids, logprobs, finish_reason } = choice ?? {};
    if (!token_ids) {
      throw new EngineError(
        `${this.url}: the reply has no token_ids: the engine must know return_token_ids (vLLM 0.10.2 or newer)`,
        { passing: false },
      );
    }
    if (!logprobs?.token_logprobs) {
      throw new EngineError(`${this.url}: the reply has no logprobs.token_logprobs`, { passing: false });
    }
    return {
      tokenIds: token_ids,
      logProbs: logprobs.token_logprobs,
      finishReason: finish_reason === 'length' ? 'length' : 'stop',
    };
  }

  async load(name: string, folder: string, signal: AbortSignal): Promise<void> {
    await this.#admin('/v1/load_lora_adapter', { lora_name: name, lora_path: folder }, LOADED, signal);
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    await this.#admin('/v1/unload_lora_adapter', { lora_name: name }, NOT_LOADED, signal);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #admin(path: string, body: object, done: RegExp, signal: AbortSignal): Promise<void> {
    try {
      await this.#http.post(path, body, signal);
    } catch (error) {
      if (!(error instanceof EngineError)) throw error;
      if (error.status === 404 && NO_ROUTE.test(error.message)) {
        throw new EngineError(
          `${error.message}: the engine takes no adapters while it runs; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`,
          { passing: false, cause: error },
        );
      }
      if (done.test(error.message)) return;
      throw UNFIT.test(error.message)
        ? new EngineError(error.message, { passing: false, cause: error })
        : error;
    }
  }

  /** The model that the engine was started with. */
  async #baseName(signal: AbortSignal): Promise<string> {
    if (this.#base !== null) return this.#base;
    const { data } = await this.#http.get('/v1/models', signal);
    const id = Array.isArray(data) ? (data[0] as JsonObject | undefined)?.id : undefined;
    if (typeof id !== 'string')
      throw new EngineError(`${this.url}/v1/models names no model`, { passing: false });
    this.#base = id;
    return id;
  }
}

/** One token after one token. */
export const PROBE: EngineCall = {
  promptIds: [1],
  sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] },
  seed: 0,
  weights: null,
};
