import { Agent, type Dispatcher, request } from 'undici';
import type { JsonObject } from '../../../shared/json.ts';
import type { SamplingSettings } from '../generation.ts';
import type { TokenGrammar } from '../grammar.ts';

/** A prompt to continue, as an engine is asked. */
export interface EngineCall {
  readonly promptIds: readonly number[];
  /** `maxNewTokens` is what the context has room for. */
  readonly sampling: SamplingSettings;
  readonly seed: number;
  readonly grammar?: TokenGrammar;
  /** Name of the weights; null for those the engine was started with. */
  readonly weights: string | null;
}

export interface EngineReply {
  readonly tokenIds: readonly number[];
  /** Under the distribution that was sampled from; same length. */
  readonly logProbs: readonly number[];
  readonly finishReason: 'stop' | 'length';
}

/** @throws EngineError for a reply that cannot be what was asked for */
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
  if (wrong !== undefined) fail(`${wrong} is no log-probability`);
}

/** An inference engine behind HTTP. */
export interface EngineClient {
  readonly url: string;
  /** True if versions are loaded next to one another; otherwise a new one replaces the last. */
  readonly versioned: boolean;
  /**
   * Finds out whether the engine can do what is needed, with one token.
   * @throws EngineError saying what it lacks
   */
  probe(signal: AbortSignal): Promise<void>;
  /** @throws EngineError */
  generate(call: EngineCall, signal: AbortSignal): Promise<EngineReply>;
  /** Loads weights from a folder that the engine sees; done already counts as done. @throws EngineError */
  load(name: string, folder: string, signal: AbortSignal): Promise<void>;
  /** Unloads weights; none under the name counts as done. @throws EngineError */
  unload(name: string, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** An engine is away, refuses, or answers what no engine may. */
export class EngineError extends Error {
  /** The engine may be asked the same again later. */
  readonly passing: boolean;
  /** The engine is at its capacity, which is no fault. */
  readonly busy: boolean;
  /** HTTP status of the refusal; undefined where there was none. */
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

export interface EngineHttpOptions {
  readonly url: string;
  /** Sent as bearer token. */
  readonly token?: string;
  /** Until a reply must be whole. */
  readonly timeoutMs: number;
}

const EXCERPT_LENGTH = 300;
/** Larger replies are refused. */
const LARGEST_REPLY_BYTES = 64 * 2 ** 20;
/** Statuses of requests that stay wrong however often they are made. */
const REFUSED: ReadonlySet<number> = new Set([400, 401, 403, 413, 422]);

/** JSON requests to one engine. */
export class EngineHttp {
  readonly url: string;
  readonly #options: EngineHttpOptions;
  readonly #dispatcher: Agent;

  constructor(options: EngineHttpOptions) {
    this.url = options.url.replace(/(?<!\/)\/+$/, '');
    this.#options = options;
    const { timeoutMs } = options;
    this.#dispatcher = new Agent({
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxResponseSize: LARGEST_REPLY_BYTES,
    });
  }

  get(path: string, signal: AbortSignal): Promise<JsonObject> {
    return this.#send('GET', path, undefined, signal);
  }

  post(path: string, body: object, signal: AbortSignal): Promise<JsonObject> {
    return this.#send('POST', path, JSON.stringify(body), signal);
  }

  /**
   * A request with a reply of one JSON document per line.
   * @param take called with each line as it comes
   */
  async postLines(
    path: string,
    body: object,
    signal: AbortSignal,
    take: (line: JsonObject) => void,
  ): Promise<void> {
    const where = `${this.url}${path}`;
    try {
      const { statusCode, body: reply } = await this.#request('POST', where, JSON.stringify(body), signal);
      if (statusCode >= 300) throw refusal(where, statusCode, await reply.text());
      let rest = '';
      for await (const chunk of reply.setEncoding('utf8')) {
        const lines = (rest + (chunk as string)).split('\n');
        rest = lines.pop()!;
        for (const line of lines) take(parsed(line));
      }
    } catch (cause) {
      throw noReply(where, cause, signal);
    }
  }

  close(): Promise<void> {
    return this.#dispatcher.destroy();
  }

  async #send(
    method: 'GET' | 'POST',
    path: string,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<JsonObject> {
    const where = `${this.url}${path}`;
    try {
      const { statusCode, body: reply } = await this.#request(method, where, body, signal);
      const text = await reply.text();
      if (statusCode >= 300) throw refusal(where, statusCode, text);
      return parsed(text);
    } catch (cause) {
      throw noReply(where, cause, signal);
    }
  }

  #request(
    method: 'GET' | 'POST',
    where: string,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData> {
    const { token, timeoutMs } = this.#options;
    return request(where, {
      method,
      dispatcher: this.#dispatcher,
      headers: {
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { body }),
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]),
    });
  }
}

function refusal(where: string, status: number, text: string): EngineError {
  return new EngineError(`${where}: status ${status}: ${said(text)}`, refusalDetails(status));
}

/** Meaning of a status for another attempt. */
export function refusalDetails(status: number): EngineErrorDetails {
  return { passing: !REFUSED.has(status), busy: status === 429, status };
}

/** The engine's own words: the message of an error in the form of OpenAI's, vLLM's or FastAPI's, else the text. */
function said(text: string): string {
  const { error, message, detail } = parsed(text);
  const inner = typeof error === 'object' && error !== null ? (error as JsonObject).message : undefined;
  const words = [inner, message, detail, error].find(one => typeof one === 'string' && one !== '') ?? text;
  return (words as string).slice(0, EXCERPT_LENGTH);
}

/** The error that a request failed with. @throws the signal's reason where it was aborted */
function noReply(where: string, cause: unknown, signal: AbortSignal): EngineError {
  if (cause instanceof EngineError) return cause;
  signal.throwIfAborted();
  const { message, code } = cause as NodeJS.ErrnoException;
  return new EngineError(`${where}: no reply (${message || code})`, { cause });
}

/** The reply's object; replies that are text or empty (vLLM's of its admin routes) give one without keys. */
function parsed(text: string): JsonObject {
  try {
    const value = JSON.parse(text) as JsonObject;
    return typeof value === 'object' && value !== null ? value : {};
  } catch {
    return {};
  }
}
