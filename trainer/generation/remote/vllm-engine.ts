import type { JsonObject } from '../../../shared/json.ts';
import {
  type EngineCall,
  type EngineClient,
  EngineError,
  EngineHttp,
  type EngineHttpOptions,
  type EngineReply,
  type WeightSpan,
} from './engine-client.ts';
import { samplingFields } from './sampling-fields.ts';

interface Completion {
  readonly token_ids?: readonly number[] | null;
  readonly logprobs?: { readonly token_logprobs?: readonly number[] } | null;
  readonly finish_reason?: string | null;
}

/** A choice of `POST /inference/v1/generate`, tokens in and out. */
interface TokensChoice {
  readonly token_ids?: readonly number[] | null;
  readonly logprobs?: { readonly content?: readonly { readonly logprob: number }[] | null } | null;
  readonly weight_versions?: readonly WeightSpan[] | null;
  readonly finish_reason?: string | null;
}

/** An engine's replies for a name that is already loaded, or not loaded. */
const LOADED = /already been loaded|loaded already/i;
const NOT_LOADED = /not (?:been |be )?(?:found|loaded)|no adapter/i;
/** vLLM's reply for an adapter that does not fit, e.g. with a larger rank; its status is 500. */
const UNFIT = /add_lora method failed|max_lora_rank/i;
/** Reply of FastAPI for a route that does not exist. */
const NO_ROUTE = /: Not Found$/;
const NO_ADAPTERS =
  'the engine takes no adapters while it runs; start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True';
const NO_WEIGHTS =
  'the engine takes no weights while it runs; start vLLM 0.32 or newer with VLLM_SERVER_DEV_MODE=1 and --enable-scale-out';

/**
 * vLLM, with `--logprobs-mode processed_logprobs`. Several adapters can be loaded at once and are sampled by `POST
 * /v1/completions`; it must run with `--enable-lora` and `VLLM_ALLOW_RUNTIME_LORA_UPDATING=True`. Whole models replace
 * the last one during responses, which `POST /inference/v1/generate` reports by token; it must run with
 * `VLLM_SERVER_DEV_MODE=1` and `--enable-scale-out`.
 */
export class VllmEngine implements EngineClient {
  readonly versioned: boolean;
  readonly inFlight: boolean;
  readonly #http: EngineHttp;
  #base: string | null = null;

  /** @param adapters versions are LoRA adapters; else whole models */
  constructor(options: EngineHttpOptions, adapters: boolean) {
    this.#http = new EngineHttp(options);
    this.versioned = adapters;
    this.inFlight = !adapters;
  }

  get url(): string {
    return this.#http.url;
  }

  async probe(signal: AbortSignal): Promise<void> {
    if (!this.versioned) {
      // An engine that a killed run left paused would not answer.
      await this.#admin('/resume', {}, NO_WEIGHTS, signal);
    }
    await this.generate(PROBE, signal);
  }

  generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    return this.versioned ? this.#complete(call, signal) : this.#generate(call, signal);
  }

  load(name: string, folder: string, signal: AbortSignal): Promise<void> {
    return this.versioned ? this.#loadAdapter(name, folder, signal) : this.#replace(name, folder, signal);
  }

  /** Whole weights stay until others replace them. */
  async unload(name: string, signal: AbortSignal): Promise<void> {
    if (!this.versioned) return;
    await this.#admin('/v1/unload_lora_adapter', { lora_name: name }, NO_ADAPTERS, signal).catch(error => {
      if (!isRefusalOf(error, NOT_LOADED)) throw error;
    });
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #complete(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const { promptIds, weights } = call;
    const reply = await this.#http.post(
      '/v1/completions',
      {
        model: weights ?? (await this.#baseName(signal)),
        prompt: promptIds,
        ...samplingOf(call),
        return_token_ids: true,
      },
      signal,
    );
    const { token_ids, logprobs, finish_reason } = firstChoice<Completion>(reply);
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

  async #generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const body = { token_ids: call.promptIds, sampling_params: samplingOf(call) };
    const reply = await this.#http.post('/inference/v1/generate', body, signal).catch(error => {
      throw lacking(error, NO_WEIGHTS);
    });
    const { token_ids, logprobs, weight_versions, finish_reason } = firstChoice<TokensChoice>(reply);
    // It stopped in mid-response: its weights could not be replaced, or it is shutting down.
    if (finish_reason === 'abort') throw new EngineError(`${this.url}: the engine broke off the request`);
    if (!(token_ids && logprobs?.content && weight_versions)) {
      throw new EngineError(
        `${this.url}: the reply lacks token_ids, logprobs.content or weight_versions: use vLLM 0.32 or newer`,
        { passing: false },
      );
    }
    return {
      tokenIds: token_ids,
      logProbs: logprobs.content.map(({ logprob }) => logprob),
      finishReason: finish_reason === 'length' ? 'length' : 'stop',
      // The engine's own, under a name that says nothing, count only where they were asked for.
      ...(call.weights === null ? {} : { weights: weight_versions }),
    };
  }

  async #loadAdapter(name: string, folder: string, signal: AbortSignal): Promise<void> {
    const body = { lora_name: name, lora_path: folder };
    await this.#admin('/v1/load_lora_adapter', body, NO_ADAPTERS, signal).catch(error => {
      if (isRefusalOf(error, LOADED)) return;
      throw isRefusalOf(error, UNFIT)
        ? new EngineError(error.message, { passing: false, cause: error })
        : error;
    });
  }

  /**
   * Replaces the weights during the requests in flight, which continue with the new ones. Their cache is recomputed, so
   * each token comes from exactly one version. On a failure they end, and the engine stays paused until the next
   * attempt, because it may hold weights of both versions.
   */
  async #replace(name: string, folder: string, signal: AbortSignal): Promise<void> {
    await this.#admin('/pause?mode=keep', {}, NO_WEIGHTS, signal);
    try {
      const body = { method: 'reload_weights', kwargs: { weights_path: folder } };
      await this.#admin('/collective_rpc', body, NO_WEIGHTS, signal);
      const { success } = await this.#http.post(
        '/reset_prefix_cache?reset_running_requests=true',
        {},
        signal,
      );
      if (success !== true) throw new EngineError(`${this.url}: the engine did not reset its prefix cache`);
      await this.#http.post('/update_weight_version', { new_version: name }, signal);
    } catch (error) {
      await this.#http.post('/pause?mode=abort', {}, signal).catch(() => {});
      throw error;
    }
    await this.#http.post('/resume', {}, signal);
  }

  /** @param hint settings that the engine needs at its start to have the route */
  async #admin(path: string, body: object, hint: string, signal: AbortSignal): Promise<void> {
    await this.#http.post(path, body, signal).catch(error => {
      throw lacking(error, hint);
    });
  }

  /** The model that the engine started with. */
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

/** One output token after one input token. */
export const PROBE: EngineCall = {
  promptIds: [1],
  sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] },
  seed: 0,
  weights: null,
};

function samplingOf({ sampling, seed }: EngineCall): Record<string, unknown> {
  const { maxNewTokens, stopTokenIds, stopStrings = [] } = sampling;
  return {
    max_tokens: maxNewTokens,
    ...samplingFields(sampling),
    seed,
    stop_token_ids: stopTokenIds,
    ignore_eos: true,
    ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
    logprobs: 0,
  };
}

function firstChoice<Choice>({ choices }: JsonObject): Partial<Choice> {
  return (Array.isArray(choices) ? (choices[0] as Choice | undefined) : undefined) ?? {};
}

function isRefusalOf(error: unknown, words: RegExp): error is EngineError {
  return error instanceof EngineError && words.test(error.message);
}

/** A permanent rejection if the engine lacks the route. */
function lacking(error: unknown, hint: string): unknown {
  return error instanceof EngineError && error.status === 404 && NO_ROUTE.test(error.message)
    ? new EngineError(`${error.message}: ${hint}`, { passing: false, cause: error })
    : error;
}
