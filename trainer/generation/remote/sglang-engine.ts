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
}

const LOADED = /already (?:been )?loaded|already exists/i;
const NOT_LOADED = /not (?:been )?(?:found|loaded|exist)/i;

/**
 * SGLang's own interface: `POST /generate` with token ids in, and token ids with log-probabilities out. Adapters are loaded
 * next to one another; whole models take the place of the last.
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
        // Without its name an adapter is silently not used.
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
      // It was started again, and takes its weights before it is asked again.
      if (!(error instanceof EngineError && NOT_LOADED.test(error.message))) throw error;
      throw new EngineError(error.message, { cause: error });
    });
    const { output_token_logprobs: tokens, finish_reason } = (reply.meta_info ?? {}) as JsonObject & MetaInfo;
    if (!Array.isArray(tokens)) {
      throw new EngineError(`${this.url}: the reply has no meta_info.output_token_logprobs`, {
        passing: false,
      });
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
    const { success, message } = await this.#http.post('/update_weights_from_disk', body, signal);
    if (success === false) throw new EngineError(`${this.url}: weights were not taken: ${String(message)}`);
  }

  async unload(name: string, signal: AbortSignal): Promise<void> {
    if (this.versioned) await this.#admin('/unload_lora_adapter', { lora_name: name }, NOT_LOADED, signal);
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  /** SGLang says in the body, too, whether it did what it was asked. */
  async #admin(path: string, body: object, done: RegExp, signal: AbortSignal): Promise<void> {
    try {
      const { success, error_message } = await this.#http.post(path, body, signal);
      if (success === false) throw new EngineError(`${this.url}${path}: ${String(error_message)}`);
    } catch (error) {
      if (error instanceof EngineError && done.test(error.message)) return;
      throw error;
    }
  }
}
