import { orAborted } from '../../client/retry.ts';
import {
  type EngineCall,
  type EngineClient,
  EngineError,
  type EngineReply,
} from '../../generation/remote/engine-client.ts';
import { changedSamplingFields } from '../../generation/remote/sampling-fields.ts';
import { type Decode, StopStrings } from '../../generation/stop-strings.ts';
import { decodeSampleResponse, type SampleResponse } from '../../tinker/proto.ts';
import type { TinkerCheckpoint } from './checkpoint.ts';
import { TinkerError, type TinkerHttp } from './http.ts';

/** Times that a sample is submitted again after the server dropped its result. */
const SUBMISSIONS = 4;
const GREATEST_SEED = 2 ** 31 - 1;
/** Neither top-k nor top-p, and a single token: the least that comes with log-probabilities of a prompt. */
const SCORE = { max_tokens: 1, temperature: 1, top_k: -1, top_p: 1 };

/** Samples of a Tinker server, as an engine: names of weights are ids of samplers, which exist before they are named here. */
export class TinkerSampler implements EngineClient {
  /** A sampler keeps its weights; otherwise the next one waits for the requests under the last. */
  readonly versioned: boolean;
  readonly url: string;
  readonly #counts: TinkerCheckpoint['tokens'];
  readonly #http: TinkerHttp;
  readonly #decode: Decode | undefined;
  #sequence = 0;

  /**
   * @param counts of tokens, which grow
   * @param decode text of tokens; absent where no response ends at a text
   */
  constructor(http: TinkerHttp, keepsSamplers: boolean, counts: TinkerCheckpoint['tokens'], decode?: Decode) {
    this.#http = http;
    this.url = http.url;
    this.#decode = decode;
    this.versioned = keepsSamplers;
    this.#counts = counts;
  }

  async generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply> {
    const { sampling, promptIds, seed, weights } = call;
    try {
      if (call.grammar)
        throw new RangeError('a Tinker server samples without a grammar: turn rollout.constrained off');
      const parameters = { ...parametersOf(sampling), seed: Math.abs(Math.trunc(seed)) % GREATEST_SEED };
      const { sequences } = await orAborted(this.#sample(weights!, promptIds, parameters), signal);
      if (!sequences[0]?.logprobs)
        throw new EngineError(`${this.url}: a sample came without a sequence with log-probabilities`);
      const { tokens, logprobs, stopReason } = sequences[0];
      this.#counts.prefilled += promptIds.length;
      this.#counts.sampled += tokens.length;
      const length = this.#stopAt(tokens, sampling.stopStrings ?? []);
      return {
        tokenIds: Array.from(tokens.subarray(0, length)),
        // Sums of float32 can end a little above 0.
        logProbs: Array.from(logprobs.subarray(0, length), x => (x > 0 && x < 1e-4 ? 0 : x)),
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

  async #sample(
    sampler: string,
    tokens: readonly number[],
    parameters: object,
    scoresPrompt = false,
  ): Promise<SampleResponse> {
    const request = {
      sampling_session_id: sampler,
      num_samples: 1,
      prompt: { chunks: [{ type: 'encoded_text', tokens }] },
      sampling_params: parameters,
      prompt_logprobs: scoresPrompt,
      type: 'sample',
    };
    for (let submission = 1; ; submission++) {
      try {
        const seq_id = ++this.#sequence;
        const read = await this.#http.submit('asample', { ...request, seq_id }, 'sampling');
        return this.#http.decoded(await read(), decodeSampleResponse, 'asample');
      } catch (error) {
        // A sample changes nothing, so that it can be taken again.
        if ((error as TinkerError).status !== 410 || submission === SUBMISSIONS) throw error;
      }
    }
  }
}

/** @throws RangeError for what the API does not have */
function parametersOf(sampling: EngineCall['sampling']): object {
  const { temperature, top_k = -1, top_p = 1, ...lacking } = changedSamplingFields(sampling);
  const [name] = Object.keys(lacking);
  if (name !== undefined) throw new RangeError(`a Tinker server samples without ${name}`);
  return { max_tokens: sampling.maxNewTokens, temperature, top_k, top_p, stop: sampling.stopTokenIds };
}
