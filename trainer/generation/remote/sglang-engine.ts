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
import { PROBE } from './vllm-engine.ts';

interface MetaInfo {
  readonly output_token_logprobs?: readonly (readonly [logProb: number, id: number, ...rest: unknown[]])[];
  readonly finish_reason?: { readonly type?: string } | null;
  readonly weight_version?: string;
}

const LOADED = /already (?:been )?loaded|already exists/i;
const NOT_LOADED = /not (?:been )?(?:found|loaded|exist)/i;
/** Replies that would come again: adapters are not turned on, or the engine has no room for one of this form. */
const UNFIT = /--enable-lora|is incompatible|doesn't support|data-parallel replicas/i;
/** Status of every answer with `success: false`, as of one for a folder that a network disk does not show yet. */
const NOT_DONE = 400;

/**
 * SGLang's own interface: `POST /generate` with token ids in, and token ids with log-probabilities out. Several
 * adapters can be loaded at once; whole models replace the last one.
 */
export class SglangEngine implements EngineClient {
  readonly versioned: boolean;
  readonly #http: EngineHttp;

  /** @param adapters versions are LoRA adapters; else whole models */
  constructor(options: EngineHttpOptions, adapters: boolean) {
    this.#http = new EngineHttp(options);
    this.versioned = adapters;
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
    const asked = this.#http.post(
      '/generate',
      {
        input_ids: promptIds,
        return_logprob: true,
        // Without its name an adapter is silently ignored.
        ...(this.versioned && weights !== null ? { lora_path: weights } : {}),
        sampling_params: {
          max_new_tokens: maxNewTokens,
          ...samplingFields(sampling),
          sampling_seed: seed,
          stop_token_ids: stopTokenIds,
          ...(stopStrings.length > 0 ? { stop: stopStrings } : {}),
        },
      },
      signal,
    );
    const reply = await asked.catch(error => {
      // It was restarted, and loads its weights before its next request.
      if (!(error instanceof EngineError && NOT_LOADED.test(error.message))) throw error;
      throw new EngineError(error.message, { cause: error });
    });
    const meta = (reply.meta_info ?? {}) as JsonObject & MetaInfo;
    const { output_token_logprobs: tokens, finish_reason, weight_version } = meta;
    // Its requests were aborted, or it paused.
    if (finish_reason?.type === 'abort')
      throw new EngineError(`${this.url}: the engine broke off the request`);
    if (!Array.isArray(tokens)) {
      throw new EngineError(`${this.url}: the reply has no meta_info.output_token_logprobs`, {
        passing: false,
      });
    }
    if (!this.versioned && weights !== null && weight_version !== weights) {
      throw new EngineError(
        `${this.url}: the weights are ${weight_version}, not ${weights}: it was started again`,
      );
    }
    return {
      tokenIds: tokens.map(([, id]) => id),
      logProbs: tokens.map(([logProb]) => logProb),
      finishReason: finish_reason?.type === 'length' ? 'length' : 'stop',
    };
  }

  async load(name: string, folder: string, signal: AbortSignal): Promise<void> {
    if (this.versioned) {
      await this.#admin('/load_lora_adapter', { lora_name: name, lora_path: folder }, LOADED, signal);
      return;
    }
    const body = { model_path: folder, weight_version: name, flush_cache: true };
    await this.#admin('/update_weights_from_disk', body, null, signal);
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    if (this.versioned) await this.#admin('/unload_lora_adapter', { lora_name: name }, NOT_LOADED, signal);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  /** @param done words of a refusal that says that it was done before */
  async #admin(path: string, body: object, done: RegExp | null, signal: AbortSignal): Promise<void> {
    await this.#http.post(path, body, signal).catch(error => {
      if (!(error instanceof EngineError && error.status === NOT_DONE)) throw error;
      if (done?.test(error.message)) return;
      throw new EngineError(error.message, { passing: !UNFIT.test(error.message), cause: error });
    });
  }
}
