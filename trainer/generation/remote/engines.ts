import type { JsonObject } from '../../../shared/json.ts';
import {
  type EngineCall,
  type EngineClient,
  EngineError,
  EngineHttp,
  type EngineHttpOptions,
  type EngineReply,
  samplingFields,
  type WeightSpan,
} from './engine-client.ts';

/** One output token after one input token. */
const PROBE: EngineCall = {
  promptIds: [1],
  sampling: { temperature: 1, topK: 0, topP: 1, maxNewTokens: 1, stopTokenIds: [] },
  seed: 0,
  weights: null,
};

/** An engine behind HTTP, apart from its routes and words. */
abstract class HttpEngine implements EngineClient {
  readonly versioned: boolean;
  protected readonly http: EngineHttp;

  /** @param adapters versions are LoRA adapters; else whole models */
  constructor(options: EngineHttpOptions, adapters: boolean) {
    this.http = new EngineHttp(options);
    this.versioned = adapters;
  }

  get url(): string {
    return this.http.url;
  }

  async probe(signal: AbortSignal): Promise<void> {
    await this.generate(PROBE, signal);
  }

  abstract generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply>;
  abstract load(name: string, folder: string, signal: AbortSignal): Promise<void>;
  abstract unload(name: string, signal: AbortSignal): Promise<void>;

  close(): Promise<void> {
    return this.http.close();
  }

  /** @param details `passing` unless they say otherwise */
  protected fault(what: string, details?: { readonly passing: boolean }): EngineError {
    return new EngineError(`${this.url}: ${what}`, details);
  }

  /** A response that the engine ended: its requests were aborted, it paused, or it is shutting down. */
  protected brokenOff(): EngineError {
    return this.fault('the engine broke off the request');
  }
}

const reasonOf = (reason: unknown): EngineReply['finishReason'] => (reason === 'length' ? 'length' : 'stop');

/** Settings of a response in the words of vLLM and `ragen serve`. */
export function completionFields({ sampling, seed }: Pick<EngineCall, 'sampling' | 'seed'>): JsonObject {
  const { maxNewTokens, stopTokenIds, stopStrings = [] } = sampling;
  return {
    max_tokens: maxNewTokens,
    ...samplingFields(sampling),
    seed,
    stop_token_ids: stopTokenIds,
    ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
  } as JsonObject;
}

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

/** vLLM's replies for an adapter that is already loaded, or not loaded, or does not fit, e.g. with a larger rank. */
const VLLM = {
  loaded: /already been loaded|loaded already/i,
  notLoaded: /not (?:been |be )?(?:found|loaded)|no adapter/i,
  unfit: /add_lora method failed|max_lora_rank/i,
} as const;
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
export class VllmEngine extends HttpEngine {
  #base: string | null = null;

  get inFlight(): boolean {
    return !this.versioned;
  }

  override async probe(signal: AbortSignal): Promise<void> {
    // An engine that a killed run left paused would not answer.
    if (!this.versioned) await this.#admin('/resume', {}, NO_WEIGHTS, signal);
    await super.probe(signal);
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
      if (!isRefusalOf(error, VLLM.notLoaded)) throw error;
    });
  }

  async #complete(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const body = {
      model: call.weights ?? (await this.#baseName(signal)),
      prompt: call.promptIds,
      ...vllmFields(call),
      return_token_ids: true,
    };
    const { token_ids, logprobs, finish_reason } = firstChoice<Completion>(
      await this.http.post('/v1/completions', body, signal),
    );
    if (!token_ids) {
      throw this.fault(
        'the reply has no token_ids: the engine must know return_token_ids (vLLM 0.10.2 or newer)',
        { passing: false },
      );
    }
    const logProbs = logprobs?.token_logprobs;
    if (!logProbs) throw this.fault('the reply has no logprobs.token_logprobs', { passing: false });
    return { tokenIds: token_ids, logProbs, finishReason: reasonOf(finish_reason) };
  }

  async #generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const body = { token_ids: call.promptIds, sampling_params: vllmFields(call) };
    const reply = await this.#admin('/inference/v1/generate', body, NO_WEIGHTS, signal);
    const { token_ids, logprobs, weight_versions, finish_reason } = firstChoice<TokensChoice>(reply);
    // Its weights could not be replaced, or it is shutting down.
    if (finish_reason === 'abort') throw this.brokenOff();
    if (!(token_ids && logprobs?.content && weight_versions)) {
      throw this.fault(
        'the reply lacks token_ids, logprobs.content or weight_versions: use vLLM 0.32 or newer',
        { passing: false },
      );
    }
    return {
      tokenIds: token_ids,
      logProbs: logprobs.content.map(({ logprob }) => logprob),
      finishReason: reasonOf(finish_reason),
      // The engine's own, under a name that says nothing, count only where they were asked for.
      ...(call.weights === null ? {} : { weights: weight_versions }),
    };
  }

  async #loadAdapter(name: string, folder: string, signal: AbortSignal): Promise<void> {
    const body = { lora_name: name, lora_path: folder };
    await this.#admin('/v1/load_lora_adapter', body, NO_ADAPTERS, signal).catch(error => {
      if (isRefusalOf(error, VLLM.loaded)) return;
      // Its status is 500, as of faults that pass.
      throw isRefusalOf(error, VLLM.unfit) ? new EngineError(error.message, FINAL(error)) : error;
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
      const reset = '/reset_prefix_cache?reset_running_requests=true';
      const { success } = await this.http.post(reset, {}, signal);
      if (success !== true) throw this.fault('the engine did not reset its prefix cache');
      await this.http.post('/update_weight_version', { new_version: name }, signal);
    } catch (error) {
      await this.http.post('/pause?mode=abort', {}, signal).catch(() => {});
      throw error;
    }
    await this.http.post('/resume', {}, signal);
  }

  /** @param hint settings that the engine needs at its start to have the route: without it the refusal is final */
  #admin(path: string, body: object, hint: string, signal: AbortSignal): Promise<JsonObject> {
    return this.http.post(path, body, signal).catch(error => {
      const isMissing = isRefusalOf(error, NO_ROUTE) && error.status === 404;
      throw isMissing ? new EngineError(`${error.message}: ${hint}`, FINAL(error)) : error;
    });
  }

  /** The model that the engine started with. */
  async #baseName(signal: AbortSignal): Promise<string> {
    if (this.#base !== null) return this.#base;
    const { data } = await this.http.get('/v1/models', signal);
    const id = Array.isArray(data) ? (data[0] as JsonObject | undefined)?.id : undefined;
    if (typeof id !== 'string')
      throw new EngineError(`${this.url}/v1/models names no model`, { passing: false });
    this.#base = id;
    return id;
  }
}

const FINAL = (cause: unknown) => ({ passing: false, cause });

const vllmFields = (call: EngineCall): object => ({
  ...completionFields(call),
  ignore_eos: true,
  logprobs: 0,
});

function firstChoice<Choice>({ choices }: JsonObject): Partial<Choice> {
  return (Array.isArray(choices) ? (choices[0] as Choice | undefined) : undefined) ?? {};
}

function isRefusalOf(error: unknown, words: RegExp): error is EngineError {
  return error instanceof EngineError && words.test(error.message);
}

interface MetaInfo {
  readonly output_token_logprobs?: readonly (readonly [logProb: number, id: number, ...rest: unknown[]])[];
  readonly finish_reason?: { readonly type?: string } | null;
  readonly weight_version?: string;
}

/**
 * SGLang's replies for an adapter that is already loaded, or not loaded; and those that would come again: adapters are
 * not turned on, or the engine has no room for one of this form.
 */
const SGLANG = {
  loaded: /already (?:been )?loaded|already exists/i,
  notLoaded: /not (?:been )?(?:found|loaded|exist)/i,
  unfit: /--enable-lora|is incompatible|doesn't support|data-parallel replicas/i,
} as const;
/** Status of every answer with `success: false`, as of one for a folder that a network disk does not show yet. */
const NOT_DONE = 400;

/**
 * SGLang's own interface: `POST /generate` with token ids in, and token ids with log-probabilities out. Several
 * adapters can be loaded at once; whole models replace the last one.
 */
export class SglangEngine extends HttpEngine {
  async generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const { promptIds, weights } = call;
    const { max_tokens, seed, ...fields } = completionFields(call);
    const body = {
      input_ids: promptIds,
      return_logprob: true,
      // Without its name an adapter is silently ignored.
      ...(this.versioned && weights !== null ? { lora_path: weights } : {}),
      sampling_params: { max_new_tokens: max_tokens, ...fields, sampling_seed: seed },
    };
    const reply = await this.http.post('/generate', body, signal).catch(error => {
      // It was restarted, and loads its weights before its next request.
      throw isRefusalOf(error, SGLANG.notLoaded) ? new EngineError(error.message, { cause: error }) : error;
    });
    const meta = (reply.meta_info ?? {}) as JsonObject & MetaInfo;
    const { output_token_logprobs: tokens, finish_reason, weight_version } = meta;
    if (finish_reason?.type === 'abort') throw this.brokenOff();
    if (!Array.isArray(tokens))
      throw this.fault('the reply has no meta_info.output_token_logprobs', { passing: false });
    if (!this.versioned && weights !== null && weight_version !== weights)
      throw this.fault(`the weights are ${weight_version}, not ${weights}: it was started again`);
    return {
      tokenIds: tokens.map(([, id]) => id),
      logProbs: tokens.map(([logProb]) => logProb),
      finishReason: reasonOf(finish_reason?.type),
    };
  }

  async load(name: string, folder: string, signal: AbortSignal): Promise<void> {
    if (this.versioned) {
      const body = { lora_name: name, lora_path: folder };
      return this.#admin('/load_lora_adapter', body, SGLANG.loaded, signal);
    }
    const body = { model_path: folder, weight_version: name, flush_cache: true };
    await this.#admin('/update_weights_from_disk', body, null, signal);
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    if (this.versioned)
      await this.#admin('/unload_lora_adapter', { lora_name: name }, SGLANG.notLoaded, signal);
  }

  /** @param done words of a refusal that says that it was done before */
  async #admin(path: string, body: object, done: RegExp | null, signal: AbortSignal): Promise<void> {
    await this.http.post(path, body, signal).catch(error => {
      if (!(error instanceof EngineError && error.status === NOT_DONE)) throw error;
      if (done?.test(error.message)) return;
      throw new EngineError(error.message, { passing: !SGLANG.unfit.test(error.message), cause: error });
    });
  }
}
