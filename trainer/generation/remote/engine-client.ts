import {
  HttpError,
  JsonClient,
  type JsonClientOptions,
  type JsonRequest,
} from '../../../shared/http/json-client.ts';
import { isObject, type JsonObject, parseJson } from '../../../shared/json.ts';
import type { SamplingDistribution, SamplingSettings } from '../generation.ts';
import type { TokenGrammar } from '../grammar.ts';

/** A request to an engine to continue a prompt. */
export interface EngineCall {
  readonly promptIds: readonly number[];
  /** `maxNewTokens` is limited by the context. */
  readonly sampling: SamplingSettings;
  readonly seed: number;
  readonly grammar?: TokenGrammar;
  /** Name of the weights; null for those the engine was started with. */
  readonly weights: string | null;
}

export interface EngineReply {
  readonly tokenIds: readonly number[];
  /** Under the sampling distribution; same length. */
  readonly logProbs: readonly number[];
  readonly finishReason: 'stop' | 'length';
  /** Names of the weights by output token, for engines that take new weights during a response. */
  readonly weights?: readonly WeightSpan[];
}

/** Tokens `[start, end)` of a response were sampled with the weights of this name. */
export interface WeightSpan {
  readonly version: string;
  readonly start: number;
  readonly end: number;
}

/** @throws EngineError for a reply that does not fit the request */
export function checkReply(
  { tokenIds, logProbs }: EngineReply,
  { sampling }: EngineCall,
  vocabularySize: number,
  url: string,
): void {
  const fail = (what: string): never => {
    throw new EngineError(`${url}: ${what}`);
  };
  if (tokenIds.length !== logProbs.length) {
    fail(`${tokenIds.length} tokens came with ${logProbs.length} log-probabilities`);
  }
  if (tokenIds.length === 0 || tokenIds.length > sampling.maxNewTokens) {
    fail(`${tokenIds.length} tokens came, asked for were up to ${sampling.maxNewTokens}`);
  }
  const unknown = tokenIds.find(id => !(Number.isInteger(id) && id >= 0 && id < vocabularySize));
  if (unknown !== undefined) fail(`token id ${unknown} is outside the vocabulary of ${vocabularySize}`);
  const wrong = logProbs.find(logProb => !(Number.isFinite(logProb) && logProb <= 1e-6));
  if (wrong !== undefined) fail(`${wrong} is not a log-probability`);
}

/** An inference engine behind HTTP. */
export interface EngineClient {
  readonly url: string;
  /** True if several versions can be loaded at once; otherwise a new one replaces the last. */
  readonly versioned: boolean;
  /** True if new weights replace the last during responses; each reply then names the weights of each token. */
  readonly inFlight?: boolean;
  /**
   * Checks the engine's abilities, with one token.
   * @throws EngineError saying what it lacks
   */
  probe(signal: AbortSignal): Promise<void>;
  /** @throws EngineError */
  generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply>;
  /**
   * Loads weights from a folder that the engine can read; weights that are already loaded are no error.
   * @throws EngineError
   */
  load(name: string, folder: string, signal: AbortSignal): Promise<void>;
  /**
   * Unloads weights; an unknown name is not an error.
   * @throws EngineError
   */
  unload(name: string, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** An engine does not answer, rejects a request, or gives an invalid answer. */
export class EngineError extends Error {
  /** The same request may succeed later. */
  readonly passing: boolean;
  /** The engine is at its capacity, which is not a fault. */
  readonly busy: boolean;
  /** HTTP status of the rejection; undefined where there was none. */
  readonly status: number | undefined;

  constructor(message: string, { passing = true, busy = false, status, cause }: EngineErrorDetails = {}) {
    super(message, { cause });
    this.name = 'EngineError';
    this.passing = passing;
    this.busy = busy;
    this.status = status;
  }
}

export interface EngineErrorDetails {
  readonly passing?: boolean;
  readonly busy?: boolean;
  readonly status?: number;
  readonly cause?: unknown;
}

export type EngineHttpOptions = Pick<JsonClientOptions, 'url' | 'token' | 'timeoutMs'>;

const EXCERPT_LENGTH = 300;
/** Statuses of requests that always fail. */
const REFUSED: ReadonlySet<number> = new Set([400, 401, 403, 413, 422]);

/** JSON requests to one engine. */
export class EngineHttp {
  readonly url: string;
  readonly #http: JsonClient;
  readonly #timeoutMs: number;

  constructor(options: EngineHttpOptions) {
    this.#http = new JsonClient(options);
    this.url = this.#http.url;
    this.#timeoutMs = options.timeoutMs;
  }

  get(path: string, signal: AbortSignal): Promise<JsonObject> {
    return this.#within(path, signal, async limited => parsed(await this.#http.send(path, limited)));
  }

  post(path: string, body: object, signal: AbortSignal): Promise<JsonObject> {
    return this.#within(path, signal, async limited =>
      parsed(await this.#http.send(path, { ...limited, method: 'POST', body })),
    );
  }

  /**
   * A request with a reply of one JSON document a line.
   * @param take called with each line when it arrives
   */
  postLines(
    path: string,
    body: object,
    signal: AbortSignal,
    take: (line: JsonObject) => void,
  ): Promise<void> {
    return this.#within(path, signal, async limited => {
      const reply = await this.#http.open(path, { ...limited, method: 'POST', body });
      let rest = '';
      for await (const chunk of reply.body.setEncoding('utf8')) {
        const end = (chunk as string).lastIndexOf('\n');
        if (end >= 0) {
          for (const line of (rest + chunk.slice(0, end)).split('\n')) take(parsed(line));
          rest = '';
        }
        rest += chunk.slice(end + 1);
      }
    });
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  /**
   * Work with a time limit.
   * @throws EngineError; the signal's reason where it was aborted
   */
  async #within<T>(
    path: string,
    signal: AbortSignal,
    work: (limited: Pick<JsonRequest, 'signal'>) => Promise<T>,
  ): Promise<T> {
    const where = `${this.url}${path}`;
    try {
      return await work({ signal: AbortSignal.any([signal, AbortSignal.timeout(this.#timeoutMs)]) });
    } catch (cause) {
      if (cause instanceof EngineError) throw cause;
      signal.throwIfAborted();
      if (cause instanceof HttpError && cause.status !== undefined) {
        const { status, text } = cause;
        throw new EngineError(`${where}: status ${status}: ${said(text)}`, refusalDetails(status));
      }
      const { message, code } = (cause instanceof HttpError ? cause.cause : cause) as NodeJS.ErrnoException;
      throw new EngineError(`${where}: no reply (${message || code})`, { cause });
    }
  }
}

/** Meaning of a status for another attempt. */
export function refusalDetails(status: number): EngineErrorDetails {
  return { passing: !REFUSED.has(status), busy: status === 429, status };
}

/** The engine's own words: the message of an error in the form of OpenAI's, vLLM's, SGLang's or FastAPI's, else the text. */
function said(text: string): string {
  const { error, message, error_message, detail } = parsed(text);
  const inner = isObject(error) ? error.message : undefined;
  const words =
    [inner, message, error_message, detail, error].find(one => typeof one === 'string' && one !== '') ?? text;
  return (words as string).slice(0, EXCERPT_LENGTH);
}

/** The reply's object; text or empty replies (of vLLM's admin routes) give one without keys. */
function parsed(text: string): JsonObject {
  const value = parseJson(text);
  return isObject(value) ? value : {};
}

/** Value of `top_k` for no limit: all versions of vLLM and SGLang accept −1, and not all accept 0. */
const ALL_TOKENS = -1;

/**
 * A distribution in the fields of vLLM and SGLang, including fields without an effect: for missing ones an engine takes
 * the values in its model's `generation_config.json`, so tokens would come from a narrower distribution than the loss
 * assumes.
 */
export function samplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const { temperature, topK, topP, logitBias = {}, badWords = [] } = distribution;
  const { minP = 0, repetitionPenalty = 1, presencePenalty = 0, frequencyPenalty = 0 } = distribution;
  return {
    temperature,
    top_p: topP,
    top_k: topK > 0 ? topK : ALL_TOKENS,
    min_p: minP,
    repetition_penalty: repetitionPenalty,
    presence_penalty: presencePenalty,
    frequency_penalty: frequencyPenalty,
    ...(Object.keys(logitBias).length > 0 ? { logit_bias: logitBias } : {}),
    ...(badWords.length > 0 ? { bad_words: badWords } : {}),
  };
}

const NEUTRAL: Readonly<Record<string, number>> = {
  top_p: 1,
  top_k: ALL_TOKENS,
  min_p: 0,
  repetition_penalty: 1,
  presence_penalty: 0,
  frequency_penalty: 0,
};

/**
 * Like {@link samplingFields}, for any kind of endpoint, which may reject unknown fields: leaves out fields without an
 * effect.
 */
export function changedSamplingFields(distribution: SamplingDistribution): Record<string, unknown> {
  const fields = Object.entries(samplingFields(distribution));
  return Object.fromEntries(fields.filter(([name, value]) => NEUTRAL[name] !== value));
}
