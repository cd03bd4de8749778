import { HttpError, JsonClient } from '../../../shared/http/json-client.ts';
import { type Backoff, backoffMs, pause, retry } from '../../../shared/http/retry.ts';
import { parseJson } from '../../../shared/json.ts';
import { partsOfText, urlOfImage } from '../../../shared/observation-parts.ts';
import { type SlotGroup, Slots } from '../../../shared/scheduling/queues.ts';
import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import type { ChatMessage } from '../../models/tokenizer/tokenizer.ts';
import type { SamplingDistribution } from '../generation.ts';
import { changedSamplingFields } from '../remote/engine-client.ts';

/** Clock of a rate limit; a test's clock only moves on request. */
interface Clock {
  now(): number;
  sleep(ms: number): Promise<void>;
}

const MINUTE_MS = 60_000;

/**
 * Limits the amount in any minute, as providers count it: expenses are remembered for a minute, and a request beyond
 * the limit waits, first come first served. A request larger than the whole limit goes alone.
 */
export class RateLimit {
  readonly #perMinute: number;
  readonly #clock: Clock;
  readonly #spent: { readonly at: number; amount: number }[] = [];
  readonly #queue = new SerialQueue();

  /** @param perMinute infinite for no limit */
  constructor(perMinute: number, clock: Clock) {
    this.#perMinute = perMinute;
    this.#clock = clock;
  }

  /** Waits until `amount` may be spent, and spends it. Returns a function that reports the actual amount. */
  take(amount: number): Promise<(actual: number) => void> {
    return this.#queue.run(async () => {
      for (let wait = this.#wait(amount); wait > 0; wait = this.#wait(amount)) await this.#clock.sleep(wait);
      const entry = { at: this.#clock.now(), amount };
      this.#spent.push(entry);
      return (actual: number) => {
        entry.amount = actual;
      };
    });
  }

  #wait(amount: number): number {
    const now = this.#clock.now();
    while (this.#spent.length > 0 && now - this.#spent[0].at >= MINUTE_MS) this.#spent.shift();
    const spent = this.#spent.reduce((sum, entry) => sum + entry.amount, 0);
    if (this.#spent.length === 0 || spent + amount <= this.#perMinute) return 0;
    return this.#spent[0].at + MINUTE_MS - now;
  }
}

export interface EndpointSettings {
  /** Up to and with the version, e.g. `http://127.0.0.1:8000/v1`. */
  readonly url: string;
  readonly model: string;
  /** Sent as bearer token; absent for endpoints that need none. */
  readonly apiKey?: string;
  /** Requests in flight at once. */
  readonly concurrency: number;
  /** Limits of the provider; null for none. */
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  /** Attempts at a request after errors that may be temporary. */
  readonly attempts: number;
  readonly timeoutMs: number;
  /** Sends stop strings along, to an endpoint that says which one ended a response. */
  readonly sendStopStrings: boolean;
  /** Sends the beginning of a response as an open last message, to an endpoint that continues it (ragen, vLLM). */
  readonly continueFinalMessage: boolean;
  /** Key of the request that limits the response, `max_tokens` or `max_completion_tokens`. */
  readonly maxTokensKey: string;
  /** Further keys of every request. */
  readonly extra: { readonly [key: string]: unknown };
}

export interface CompletionRequest {
  readonly messages: readonly ChatMessage[];
  /** Beginning of the response, where the endpoint continues messages. */
  readonly prime?: string;
  readonly maxTokens: number;
  readonly sampling: SamplingDistribution;
  readonly seed: number;
  /** The text ends with the first of these that is in it. */
  readonly stopStrings: readonly string[];
}

export interface Completion {
  readonly text: string;
  readonly finishReason: 'stop' | 'length';
}

/** Counts of requests to an endpoint. */
export interface EndpointUsage {
  readonly requests: number;
  readonly retries: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/** The endpoint rejected a request, or failed until the attempts ran out. */
export class EndpointError extends Error {
  constructor(message: string, cause?: unknown) {
    super(message, { cause });
    this.name = 'EndpointError';
  }
}

const BACKOFF: Backoff = { firstMs: 500, maxMs: 30_000, jitter: 0.5 };
const EXCERPT_LENGTH = 300;
/** Rough number of characters of a token, to estimate the cost of a request. */
const CHARACTERS_PER_TOKEN = 4;
/** Rough number of tokens of a picture: that of vision models for 768 × 768 pixels. */
const TOKENS_PER_PICTURE = 1000;
const DATA_URL = /"url":"data:image\/[^"]*"/g;
const REAL_CLOCK: Clock = { now: () => performance.now(), sleep: ms => pause(ms) };

interface Choice {
  readonly message?: { readonly content?: string | null };
  readonly finish_reason?: string | null;
  /** Cause of the text's end, as vLLM and as SGLang report it: a stop string, a token's id, or null for the model's own end. */
  readonly stop_reason?: string | number | null;
  readonly matched_stop?: string | number | null;
}

interface Reply {
  readonly choices?: readonly Choice[];
  readonly usage?: { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } | null;
}

/**
 * Chat completions of an OpenAI-compatible endpoint (vLLM, SGLang, llama.cpp, hosted models): as many at once as allowed,
 * within the provider's limits, repeated when they fail in a way that may pass.
 *
 * @example
 * const endpoint = new Completions({ url: 'http://127.0.0.1:8000/v1', model: 'Qwen/Qwen2.5-0.5B-Instruct', … });
 * const { text } = await endpoint.complete({ messages: [{ role: 'user', content: 'Which way?' }], maxTokens: 40, … });
 */
export class Completions {
  readonly #settings: EndpointSettings;
  readonly #clock: Clock;
  readonly #requests: RateLimit;
  readonly #tokens: RateLimit;
  readonly #http: JsonClient;
  readonly #open: SlotGroup;
  #usage = { requests: 0, retries: 0, promptTokens: 0, completionTokens: 0 };

  constructor(settings: EndpointSettings, clock: Clock = REAL_CLOCK) {
    this.#settings = settings;
    this.#clock = clock;
    this.#requests = new RateLimit(settings.requestsPerMinute ?? Number.POSITIVE_INFINITY, clock);
    this.#tokens = new RateLimit(settings.tokensPerMinute ?? Number.POSITIVE_INFINITY, clock);
    this.#open = new Slots({ most: settings.concurrency }).group('');
    const { url, apiKey: token, timeoutMs, concurrency: connections } = settings;
    this.#http = new JsonClient({ url, token, timeoutMs, connections });
  }

  get usage(): EndpointUsage {
    return this.#usage;
  }

  /** True if responses continue a given {@link CompletionRequest.prime}. */
  get primes(): boolean {
    return this.#settings.continueFinalMessage;
  }

  /**
   * @returns the text after the prime.
   * @throws EndpointError
   */
  async complete(completion: CompletionRequest): Promise<Completion> {
    const body = this.#body(completion);
    const attempt = () => this.#attempt(body, completion);
    const pauseAfter = (error: unknown, attempts: number) => this.#pauseAfter(error, attempts);
    return this.#open.run(() => retry(attempt, pauseAfter, undefined, this.#clock.sleep));
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  async #attempt(body: string, { maxTokens, stopStrings }: CompletionRequest): Promise<Completion> {
    const correct = await this.#spend(body, maxTokens);
    this.#usage.requests++;
    const text = await this.#http.send('/chat/completions', { method: 'POST', body });
    const reply = readReply(text);
    if (!reply) {
      const what = `the answer is not a chat completion: ${text.slice(0, EXCERPT_LENGTH)}`;
      throw new EndpointError(`${this.#settings.url}: ${what}`);
    }
    const promptTokens = tokenCount(reply.usage?.prompt_tokens);
    const completionTokens = tokenCount(reply.usage?.completion_tokens);
    if (reply.usage) correct(promptTokens + completionTokens);
    this.#usage.promptTokens += promptTokens;
    this.#usage.completionTokens += completionTokens;
    return this.#completionOf(reply, stopStrings);
  }

  #pauseAfter(error: unknown, attempt: number): number {
    if (!(error instanceof HttpError)) throw error;
    const { attempts } = this.#settings;
    if (!error.passing) throw new EndpointError(error.message, error);
    if (attempt >= attempts) {
      throw new EndpointError(`${error.message}, ${attempts} times (endpoint.attempts)`, error);
    }
    this.#usage.retries++;
    return Math.max(error.retryAfterMs, backoffMs(BACKOFF, attempt));
  }

  #body(completion: CompletionRequest): string {
    const { model, maxTokensKey, sendStopStrings, extra } = this.#settings;
    const { stopStrings, prime = '' } = completion;
    const open = this.primes && prime !== '';
    const messages = completion.messages.map(withPictures);
    return JSON.stringify({
      model,
      messages: open ? [...messages, { role: 'assistant', content: prime }] : messages,
      ...(open ? { add_generation_prompt: false, continue_final_message: true } : {}),
      ...changedSamplingFields(completion.sampling),
      ...(sendStopStrings && stopStrings.length > 0 ? { stop: stopStrings } : {}),
      [maxTokensKey]: completion.maxTokens,
      seed: completion.seed,
      ...extra,
    });
  }

  async #spend(body: string, maxTokens: number): Promise<(actual: number) => void> {
    await this.#requests.take(1);
    const pictures = body.match(DATA_URL) ?? [];
    const text = pictures.reduce((length, picture) => length - picture.length, body.length);
    const prompt = Math.ceil(text / CHARACTERS_PER_TOKEN) + TOKENS_PER_PICTURE * pictures.length;
    return this.#tokens.take(prompt + maxTokens);
  }

  #completionOf({ choices }: Reply, stopStrings: readonly string[]): Completion {
    const choice = choices?.[0] ?? {};
    const finishReason = choice.finish_reason === 'length' ? 'length' : 'stop';
    const content = choice.message?.content ?? '';
    const sent = this.#settings.sendStopStrings && stopStrings.length > 0 && finishReason === 'stop';
    const text = sent ? content + this.#missingEnd(choice, content) : content;
    const end = firstEnd(text, stopStrings);
    return end === undefined ? { text, finishReason } : { text: text.slice(0, end), finishReason: 'stop' };
  }

  /**
   * The stop string that ended a text and is missing in it.
   * @throws EndpointError if the endpoint does not report it
   */
  #missingEnd(choice: Choice, content: string): string {
    const end = choice.stop_reason === undefined ? choice.matched_stop : choice.stop_reason;
    if (end === undefined) {
      throw new EndpointError(
        `${this.#settings.url}: the answer does not say which stop string ended it (stop_reason or matched_stop): set endpoint.send_stop_strings=false`,
      );
    }
    return typeof end === 'string' && !content.endsWith(end) ? end : '';
  }
}

/** A message for the endpoint: pictures in its text become parts of it, as vision models take them. */
function withPictures(message: ChatMessage): object {
  const parts = partsOfText(message.content);
  if (parts.every(({ type }) => type === 'text')) return message;
  const content = parts.map(part =>
    part.type === 'text' ? part : { type: 'image_url', image_url: { url: urlOfImage(part) } },
  );
  return { ...message, content };
}

/** Index after the first complete string in a text; undefined if it contains none. */
function firstEnd(text: string, strings: readonly string[]): number | undefined {
  const ends = strings.flatMap(string => {
    const at = text.indexOf(string);
    return at < 0 ? [] : [at + string.length];
  });
  return ends.length === 0 ? undefined : Math.min(...ends);
}

/** A number of tokens as the endpoint gives it; 0 for anything else. */
const tokenCount = (given: unknown): number =>
  Number.isSafeInteger(given) ? Math.max(0, given as number) : 0;

function readReply(text: string): Reply | undefined {
  const reply = parseJson(text) as Reply | null | undefined;
  if (!Array.isArray(reply?.choices) || reply.choices.length === 0) return undefined;
  const content: unknown = reply.choices[0]?.message?.content ?? '';
  return typeof content === 'string' ? reply : undefined;
}
