import type { Readable } from 'node:stream';
import { Agent, type Dispatcher, EnvHttpProxyAgent, request } from 'undici';
import { isLoopback } from '../../shared/http/addresses.ts';
import { interimLimit, LateBody, RefusedBody, textOf } from '../../shared/http/chunks.ts';
import { backoffMs, retry, retryAfterMs } from '../../shared/http/retry.ts';
import { parseJson } from '../../shared/json.ts';
import { VERSION } from '../../shared/program.ts';
import { HubError, type HubSettings, mayRedirect, refusal } from './hub-settings.ts';

const MAX_REDIRECTS = 5;
const MAX_ATTEMPTS = 5;
const FIRST_PAUSE_MS = 500;
const MAX_PAUSE_MS = 30_000;
/** Longest silence, before a reply and within one. */
const SILENCE_MS = 30_000;
const MAX_TEXT_BYTES = 32 * 2 ** 20;
/** For a whole text, in multiples of the longest silence. */
const TEXT_SILENCES = 10;
const TOO_MANY_REQUESTS = 429;
const REQUEST_TIMEOUT = 408;

export interface HubRequest {
  readonly method?: 'GET' | 'HEAD' | 'POST';
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** Does not follow redirects to other hosts; the reply is then the redirect. */
  readonly stay?: boolean;
}

export interface HubAnswer {
  readonly status: number;
  readonly headers: Dispatcher.ResponseData['headers'];
  readonly body: Dispatcher.ResponseData['body'];
  /** Address after all redirects. */
  readonly url: URL;
}

export interface HubClientOptions {
  readonly signal?: AbortSignal;
  /** Called with the reason for each retry or wait. */
  readonly note?: (text: string) => void;
  /** Pause before the second attempt, in milliseconds; doubled before each further one. */
  readonly firstPauseMs?: number;
  /** Longest silence of a hub, in milliseconds. */
  readonly silenceMs?: number;
}

/**
 * Sends requests to a hub. Redirects must lead to https or stay on this machine, the token goes to the hub's own
 * address only, and passing failures (429, 5xx, broken connections) are retried.
 */
export class HubClient {
  readonly settings: HubSettings;
  /** Reports the reasons for waiting. */
  readonly note = (text: string): void => this.#options.note?.(text);
  readonly #options: HubClientOptions;
  readonly #dispatcher: Dispatcher;

  constructor(settings: HubSettings, options: HubClientOptions = {}) {
    this.settings = settings;
    this.#options = options;
    this.#dispatcher = isLoopback(new URL(settings.endpoint).hostname)
      ? new Agent()
      : new EnvHttpProxyAgent();
  }

  get signal(): AbortSignal | undefined {
    return this.#options.signal;
  }

  /**
   * JSON of a route.
   * @param what the model or file, for errors
   * @throws HubError
   */
  async json(path: string, what: string): Promise<unknown> {
    return this.retried(what, async () => {
      const answer = await this.send(path, {});
      const text = await this.text(answer, what);
      if (answer.status >= 300) throw this.refused(answer, what, text);
      try {
        return JSON.parse(text) as unknown;
      } catch (error) {
        throw new HubError(`${answer.url.origin} does not answer with JSON for ${what}: is it a hub?`, {
          cause: error,
        });
      }
    });
  }

  /**
   * One request with its redirects; a reply with any status is returned.
   * @throws HubError for a rejected redirect
   */
  async send(
    path: string,
    { method = 'GET', headers = {}, body, stay = false }: HubRequest,
  ): Promise<HubAnswer> {
    const { endpoint, token } = this.settings;
    const { signal, silenceMs = SILENCE_MS } = this.#options;
    let url = new URL(path, `${endpoint}/`);
    for (let redirects = 0; ; redirects++) {
      const authorization =
        token !== undefined && url.origin === new URL(endpoint).origin
          ? { authorization: `Bearer ${token}` }
          : {};
      const answer = await request(url, {
        method,
        headers: { 'user-agent': `ragen/${VERSION}`, ...headers, ...authorization },
        body,
        signal,
        dispatcher: this.#dispatcher,
        headersTimeout: silenceMs,
        bodyTimeout: silenceMs,
        onInfo: interimLimit(),
      });
      const { statusCode: status, headers: received } = answer;
      const location = received.location;
      if (status < 300 || status >= 400 || typeof location !== 'string') {
        return { status, headers: received, body: answer.body, url };
      }
      const target = new URL(location, url);
      if (stay && target.origin !== url.origin) return { status, headers: received, body: answer.body, url };
      await answer.body.dump();
      if (redirects === MAX_REDIRECTS)
        throw new HubError(`${url.origin} redirects more than ${MAX_REDIRECTS} times`);
      if (!mayRedirect(endpoint, target)) {
        throw new HubError(`${url.origin} redirects to ${target.origin}, which is not https: refused`);
      }
      url = target;
    }
  }

  /**
   * The text of a reply.
   * @throws HubError for a reply that cannot be from a hub
   */
  async text({ body, url }: { readonly body: Readable; readonly url: URL }, what: string): Promise<string> {
    const { silenceMs = SILENCE_MS } = this.#options;
    try {
      return await textOf(body, { maxBytes: MAX_TEXT_BYTES, maxMs: TEXT_SILENCES * silenceMs });
    } catch (error) {
      if (error instanceof RefusedBody) throw new HubError(`${url.origin}, ${what}: ${error.message}`);
      if (error instanceof LateBody) throw new PassingError(`${url.origin}, ${what}: ${error.message}`, {});
      throw error;
    }
  }

  /** Retries work after passing failures. */
  retried<T>(what: string, work: () => Promise<T>): Promise<T> {
    const { signal, firstPauseMs = FIRST_PAUSE_MS } = this.#options;
    const pauseAfter = (error: unknown, attempt: number): number => {
      if (!mayPass(error)) throw error;
      const reason =
        error instanceof HubError ? error.message : `${this.settings.endpoint}: ${reasonOf(error)}`;
      if (attempt === MAX_ATTEMPTS) {
        throw new HubError(`${what}: given up after ${MAX_ATTEMPTS} attempts; the last one: ${reason}`, {
          cause: error,
          status: error instanceof HubError ? error.status : undefined,
        });
      }
      const asked = error instanceof PassingError ? error.pauseMs : 0;
      const pause = Math.min(MAX_PAUSE_MS, Math.max(asked, backoffMs({ firstMs: firstPauseMs }, attempt)));
      this.note(`${what}: ${reason}; trying again in ${(pause / 1000).toFixed(1)} s`);
      return pause;
    };
    return retry(work, pauseAfter, signal);
  }

  /** The error for a reply without success. */
  refused({ status, headers }: Pick<HubAnswer, 'status' | 'headers'>, what: string, text = ''): HubError {
    if (status === TOO_MANY_REQUESTS || status === REQUEST_TIMEOUT || status >= 500) {
      const pauseMs = retryAfterMs(headers['retry-after']);
      return new PassingError(`${this.settings.endpoint} answers ${status}`, { status, pauseMs });
    }
    const code = headers['x-error-code'];
    const said = headers['x-error-message'] ?? errorIn(text);
    return refusal(
      what,
      this.settings.endpoint,
      { status, code: String(code ?? ''), text: said === undefined ? undefined : String(said) },
      this.settings.token !== undefined,
    );
  }

  async close(): Promise<void> {
    await this.#dispatcher.close();
  }
}

/** A refusal that a retry may not meet. */
export class PassingError extends HubError {
  /** Milliseconds that the hub asks to wait. */
  readonly pauseMs: number;

  constructor(
    message: string,
    options: { readonly status?: number; readonly pauseMs?: number; readonly cause?: unknown },
  ) {
    super(message, options);
    this.pauseMs = options.pauseMs ?? 0;
  }
}

function mayPass(error: unknown): boolean {
  if (error instanceof HubError) return error instanceof PassingError;
  const code = String((error as NodeJS.ErrnoException).code ?? '');
  return NETWORK_CODES.has(code) || code.startsWith('UND_ERR_');
}

const NETWORK_CODES: ReadonlySet<string> = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ENOTFOUND',
  'EAI_AGAIN',
  'ETIMEDOUT',
  'EHOSTUNREACH',
  'ENETUNREACH',
]);

/** True if the hub could not be reached at all, so that the cache may be used instead. */
export function isUnreachable(error: unknown): boolean {
  if (!(error instanceof HubError)) return mayPass(error);
  return (error instanceof PassingError || error.cause !== undefined) && (error.status ?? 500) >= 500;
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return message || String(code);
}

function errorIn(text: string): string | undefined {
  const { error } = (parseJson(text) ?? {}) as { error?: unknown };
  return typeof error === 'string' ? error : undefined;
}
