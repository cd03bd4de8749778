import { orAborted } from '../../../shared/http/retry.ts';
import {
  changedSamplingFields,
  checkReply,
  type EngineCall,
  type EngineClient,
  EngineError,
  type EngineReply,
} from '../../generation/remote/engine-client.ts';
import { type Decode, StopStrings } from '../../generation/sequence.ts';
import { decodeSampleResponse, type SampleResponse } from '../../tinker/proto.ts';
import type { TinkerCheckpoint } from './checkpoint.ts';
import { TinkerError, type TinkerHttp } from './http.ts';
import { TINKER_PROFILES, type TinkerServer } from './profiles.ts';

/** Most submissions of a sample after lost or invalid results. */
const SUBMISSIONS = 4;
const GREATEST_SEED = 2 ** 31 - 1;
/** No top-k or top-p, and a single token: the smallest request with log-probabilities of a prompt. */
const SCORE = { max_tokens: 1, temperature: 1, top_k: -1, top_p: 1 };

export interface TinkerSamplerOptions {
  readonly server: TinkerServer;
  /** Size of the tokenizer's vocabulary; the model's is at least as large. */
  readonly vocabularySize: number;
  /** Text of tokens, for responses that end at a text. */
  readonly decode?: Decode;
}

/** Samples of a Tinker server, as an engine: names of weights are ids of existing samplers. */
export class TinkerSampler implements EngineClient {
  /** A sampler keeps its weights; otherwise the next one waits for the requests under the last. */
  readonly versioned: boolean;
  readonly url: string;
  readonly #http: TinkerHttp;
  readonly #vocabularySize: number;
  readonly #decode: Decode | undefined;
  readonly #counts: TinkerCheckpoint['tokens'];
  #sequence = 0;

  /** @param counts of tokens, which grow */
  constructor(http: TinkerHttp, options: TinkerSamplerOptions, counts: TinkerCheckpoint['tokens']) {
    this.#http = http;
    this.url = http.url;
    this.versioned = TINKER_PROFILES[options.server].keepsSamplers;
    this.#vocabularySize = options.vocabularySize;
    this.#decode = options.decode;
    this.#counts = counts;
  }

  async generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const { sampling, promptIds, seed, weights } = call;
    try {
      if (call.grammar)
        throw new RangeError('a Tinker server samples without a grammar: turn rollout.constrained off');
      const parameters = { ...parametersOf(sampling), seed: Math.abs(Math.trunc(seed)) % GREATEST_SEED };
      const work = this.#sample(weights!, promptIds, parameters, sample => this.#replyOf(sample, call));
      return await orAborted(work, signal);
    } catch (error) {
      signal.throwIfAborted();
      throw new EngineError((error as Error).message, { passing: false, cause: error });
    }
  }

  /** @throws EngineError for an invalid sample */
  #replyOf({ sequences }: SampleResponse, call: EngineCall): EngineReply {
    if (!sequences[0]?.logprobs)
      throw new EngineError(`${this.url}: a sample came without a sequence with log-probabilities`);
    const { tokens, logprobs, stopReason } = sequences[0];
    this.#counts.prefilled += call.promptIds.length;
    this.#counts.sampled += tokens.length;
    const whole = {
      tokenIds: Array.from(tokens),
      // Sums of float32 can end a little above 0.
      logProbs: Array.from(logprobs, x => (x > 0 && x < 1e-4 ? 0 : x)),
      finishReason: stopReason,
    };
    checkReply(whole, call, this.#vocabularySize, this.url);
    const length = this.#stopAt(tokens, call.sampling.stopStrings ?? []);
    if (length === undefined) return whole;
    const [tokenIds, logProbs] = [whole.tokenIds.slice(0, length), whole.logProbs.slice(0, length)];
    return { tokenIds, logProbs, finishReason: 'stop' };
  }

  /** log p of each token given those before it, in nats; 0 for the first. @throws TinkerError */
  async scorePrompt(sampler: string, tokenIds: Int32Array): Promise<Float32Array> {
    const found = await this.#sample(sampler, Array.from(tokenIds), SCORE, sample => sample.promptLogprobs);
    const { length } = tokenIds;
    this.#counts.prefilled += length;
    // SkyRL leaves the first one out.
    const missing = length - (found?.length ?? 0);
    if (!found || (missing !== 0 && missing !== 1)) {
      const count = found?.length ?? 'no';
      throw new TinkerError(`${this.url}: ${count} log-probabilities of a prompt of ${length} tokens came`);
    }
    const logProbs = new Float32Array(length);
    logProbs.set(found, missing);
    logProbs[0] = 0;
    return logProbs;
  }

  /** Number of tokens up to the first stop string, which servers take in place of stop tokens only; undefined without one. */
  #stopAt(tokens: Int32Array, strings: readonly string[]): number | undefined {
    if (strings.length === 0) return undefined;
    const watch = new StopStrings(strings, this.#decode);
    for (let n = 1; n <= tokens.length; n++) if (watch.isIn(tokens.subarray(0, n))) return n;
    return undefined;
  }

  async probe(): Promise<void> {}
  async load(): Promise<void> {}
  async unload(): Promise<void> {}
  async close(): Promise<void> {}

  async #sample<T>(
    sampler: string,
    tokens: readonly number[],
    parameters: object,
    take: (sample: SampleResponse) => T,
  ): Promise<T> {
    const request = {
      sampling_session_id: sampler,
      num_samples: 1,
      prompt: { chunks: [{ type: 'encoded_text', tokens }] },
      sampling_params: parameters,
      prompt_logprobs: parameters === SCORE,
      type: 'sample',
    };
    for (let submission = 1; ; submission++) {
      try {
        const seq_id = ++this.#sequence;
        const read = await this.#http.submit('asample', { ...request, seq_id }, 'sampling');
        return take(this.#http.decoded(await read(), decodeSampleResponse, 'asample'));
      } catch (error) {
        // A sample changes nothing, so it can be repeated.
        const canPass = error instanceof EngineError || (error as TinkerError).status === 410;
        if (!canPass || submission === SUBMISSIONS) throw error;
      }
    }
  }
}

/** @throws RangeError for parameters that the API does not have */
function parametersOf(sampling: EngineCall['sampling']): object {
  const { temperature, top_k = -1, top_p = 1, ...lacking } = changedSamplingFields(sampling);
  const [name] = Object.keys(lacking);
  if (name !== undefined) throw new RangeError(`a Tinker server samples without ${name}`);
  return { max_tokens: sampling.maxNewTokens, temperature, top_k, top_p, stop: sampling.stopTokenIds };
}
