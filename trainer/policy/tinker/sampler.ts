import { orAborted } from '../../client/retry.ts';
import {
  type EngineCall,
  type EngineClient,
  EngineError,
  type EngineReply,
} from '../../generation/remote/engine-client.ts';
import { type Decode, StopStrings } from '../../generation/stop-strings.ts';
import { decodeSampleResponse, type SampleResponse, TinkerProtocolError } from '../../tinker/proto.ts';
import { bytesOf, TinkerError, type TinkerHttp, textOf } from './http.ts';

/** Times that a sample is submitted again after the server dropped its result. */
const SUBMISSIONS = 4;
const GREATEST_SEED = 2 ** 31 - 1;
/** Neither top-k nor top-p, and a single token: the least that comes with log-probabilities of a prompt. */
const SCORE = { max_tokens: 1, temperature: 1, top_k: -1, top_p: 1 };

/** Tokens that samplers read and wrote. */
export interface SamplerCounts {
  prefilled: number;
  sampled: number;
}

/** Samples of a Tinker server, as an engine: names of weights are ids of samplers, which exist before they are named here. */
export class TinkerSampler implements EngineClient {
  /** A sampler keeps its weights; otherwise the next one waits for the requests under the last. */
  readonly versioned: boolean;
  readonly counts: SamplerCounts;
  readonly #http: TinkerHttp;
  readonly #decode: Decode | undefined;
  readonly #sequences = new Map<string, number>();

  /** @param decode text of tokens; absent where no response ends at a text */
  constructor(http: TinkerHttp, keepsSamplers: boolean, counts: SamplerCounts, decode?: Decode) {
    this.#http = http;
    this.#decode = decode;
    this.versioned = keepsSamplers;
    this.counts = counts;
  }

  get url(): string {
    return this.#http.url;
  }

  async generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const { sampling, promptIds, seed, weights } = call;
    try {
      if (call.grammar)
        throw new RangeError('a Tinker server samples without a grammar: turn rollout.constrained off');
      const work = this.#sample(weights!, promptIds, {
        ...samplingParameters(sampling),
        seed: Math.abs(Math.trunc(seed)) % GREATEST_SEED,
      });
      const [sequence] = (await orAborted(work, signal)).sequences;
      if (!sequence) throw new EngineError(`${this.url}: a sample came without a sequence`);
      const { tokens, logprobs, stopReason } = sequence;
      if (!logprobs) throw new EngineError(`${this.url}: a sample came without log-probabilities`);
      this.counts.prefilled += promptIds.length;
      this.counts.sampled += tokens.length;
      // Sums of float32 can end a little above 0.
      const logProbs = Array.from(logprobs, logProb => (logProb > 0 && logProb < 1e-4 ? 0 : logProb));
      const { stopStrings = [] } = sampling;
      const length = this.#stopAt(tokens, stopStrings);
      return {
        tokenIds: Array.from(tokens.subarray(0, length)),
        logProbs: logProbs.slice(0, length),
        finishReason: length === undefined ? stopReason : 'stop',
      };
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof EngineError) throw error;
      throw new EngineError((error as Error).message, { passing: false, cause: error });
    }
  }

  /**
   * log p of each token given those before it, in nats; 0 for the first.
   * @throws TinkerError
   */
  async scorePrompt(sampler: string, tokenIds: Int32Array): Promise<Float32Array> {
    const { promptLogprobs: found } = await this.#sample(sampler, Array.from(tokenIds), SCORE, true);
    this.counts.prefilled += tokenIds.length;
    const { length } = tokenIds;
    // SkyRL leaves the first one out.
    const missing = length - (found?.length ?? 0);
    if (!found || (missing !== 0 && missing !== 1)) {
      throw new TinkerError(
        `${this.url}: ${found?.length ?? 'no'} log-probabilities of a prompt of ${length} tokens came`,
      );
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
  async unload(name: string): Promise<void> {
    this.#sequences.delete(name);
  }
  async close(): Promise<void> {}

  async #sample(
    sampler: string,
    tokens: readonly number[],
    parameters: object,
    scoresPrompt = false,
  ): Promise<SampleResponse> {
    for (let submission = 1; ; submission++) {
      const number = (this.#sequences.get(sampler) ?? 0) + 1;
      this.#sequences.set(sampler, number);
      try {
        const reply = await this.#http.post(
          'asample',
          {
            sampling_session_id: sampler,
            seq_id: number,
            num_samples: 1,
            prompt: { chunks: [{ type: 'encoded_text', tokens }] },
            sampling_params: parameters,
            prompt_logprobs: scoresPrompt,
            type: 'sample',
          },
          'sampling',
        );
        const id = textOf(reply, 'request_id', `${this.url}: asample`);
        return decodeSampleResponse(bytesOf(await this.#http.result(id, 'asample', 'sampling'), 'asample'));
      } catch (error) {
        if (error instanceof TinkerProtocolError)
          throw new TinkerError(`${this.url}: asample: ${error.message}`);
        // A sample changes nothing, so that it can be taken again.
        if ((error as TinkerError).status !== 410 || submission === SUBMISSIONS) throw error;
      }
    }
  }
}

/** @throws RangeError for what the API does not have */
function samplingParameters(sampling: EngineCall['sampling']): object {
  const { temperature, topK, topP, maxNewTokens, stopTokenIds } = sampling;
  const { minP = 0, repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = sampling;
  const { logitBias = {}, badWords = [] } = sampling;
  const lacking = [
    ['min_p', minP > 0],
    ['repetition_penalty', repetitionPenalty !== 1],
    ['presence_penalty', presencePenalty !== 0],
    ['frequency_penalty', frequencyPenalty !== 0],
    ['logit_bias', Object.keys(logitBias).length > 0],
    ['bad_words', badWords.length > 0],
  ].find(([, isOn]) => isOn);
  if (lacking) throw new RangeError(`a Tinker server samples without ${lacking[0]}`);
  return {
    max_tokens: maxNewTokens,
    temperature,
    top_k: topK === 0 ? -1 : topK,
    top_p: topP,
    stop: stopTokenIds,
  };
}
