import { Agent, RetryAgent, request } from 'undici';
import { EndpointError } from '../generation/endpoint/completions.ts';
import type { Policy, Score, ScoreRequest, ScoreSettings } from './policy.ts';

export interface ScorerSettings {
  /** Up to and with the version, e.g. `http://127.0.0.1:8000/v1`. */
  readonly url: string;
  readonly model: string;
  /** Sent as bearer token; absent for endpoints that want none. */
  readonly apiKey?: string;
  /** Requests in flight at once. */
  readonly concurrency: number;
  /** Attempts at a request that fails in a way that may pass. */
  readonly attempts: number;
  /** For one request. */
  readonly timeoutMs: number;
}

const FIRST_DELAY_MS = 500;
const MAX_DELAY_MS = 30_000;
const EXCERPT_LENGTH = 300;
const PASSING_STATUS = [408, 409, 425, 429, 500, 502, 503, 504];
const PASSING_CODES = ['ECONNRESET', 'ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EPIPE', 'UND_ERR_SOCKET'];

interface Reply {
  readonly choices?: readonly {
    readonly logprobs?: { readonly token_logprobs?: readonly (number | null)[] } | null;
  }[];
}

/**
 * Log-probabilities of given tokens under a model behind an endpoint with text completions that repeat their prompt (`echo` with
 * `logprobs`: ragen, vLLM). Tokens are sent as ids, so the model must have the policy's tokenizer.
 */
export class EndpointScorer implements Pick<Policy, 'score'> {
  readonly #settings: ScorerSettings;
  readonly #dispatcher: RetryAgent;

  constructor(settings: ScorerSettings) {
    this.#settings = settings;
    const { concurrency, timeoutMs, attempts } = settings;
    const agent = new Agent({ headersTimeout: timeoutMs, bodyTimeout: timeoutMs, connections: concurrency });
    this.#dispatcher = new RetryAgent(agent, {
      maxRetries: attempts - 1,
      minTimeout: FIRST_DELAY_MS,
      maxTimeout: MAX_DELAY_MS,
      methods: ['POST'],
      statusCodes: PASSING_STATUS,
      errorCodes: PASSING_CODES,
    });
  }

  /**
   * Entropies are NaN: an endpoint does not report them.
   * @throws RangeError for a temperature other than 1 and for grammars, which endpoints do not score under; EndpointError
   */
  score(sequences: readonly ScoreRequest[], settings: ScoreSettings = { temperature: 1 }): Promise<Score[]> {
    if (settings.temperature !== 1)
      throw new RangeError(`an endpoint scores at temperature 1, not at ${settings.temperature}`);
    return Promise.all(sequences.map(sequence => this.#scoreOne(sequence)));
  }

  close(): Promise<void> {
    return this.#dispatcher.destroy();
  }

  async #scoreOne({ tokenIds, lossMask, grammar }: ScoreRequest): Promise<Score> {
    if (grammar !== undefined) throw new RangeError(`an endpoint does not know the grammar ${grammar}`);
    const found = await this.#ask(tokenIds);
    const logProbs = new Float32Array(tokenIds.length);
    const entropies = new Float32Array(tokenIds.length);
    for (let t = 0; t < tokenIds.length; t++) {
      if (!lossMask[t]) continue;
      const logProb = found[t];
      if (typeof logProb !== 'number' || !(logProb <= 0))
        throw this.#fault(`token ${t} has the log-probability ${logProb}, which is no number up to 0`);
      logProbs[t] = logProb;
      entropies[t] = Number.NaN;
    }
    return { logProbs, entropies };
  }

  async #ask(tokenIds: Int32Array): Promise<readonly (number | null)[]> {
    const { url, model, apiKey } = this.#settings;
    const body = {
      model,
      prompt: Array.from(tokenIds),
      max_tokens: 0,
      echo: true,
      logprobs: 1,
      temperature: 1,
    };
    let text: string;
    try {
      const response = await request(`${url.replace(/\/$/, '')}/completions`, {
        method: 'POST',
        dispatcher: this.#dispatcher,
        headers: {
          'content-type': 'application/json',
          ...(apiKey === undefined ? {} : { authorization: `Bearer ${apiKey}` }),
        },
        body: JSON.stringify(body),
      });
      text = await response.body.text();
      if (response.statusCode >= 300)
        throw this.#fault(`status ${response.statusCode}: ${text.slice(0, EXCERPT_LENGTH)}`);
    } catch (error) {
      if (error instanceof EndpointError) throw error;
      throw this.#fault((error as Error).message, error);
    }
    const found = tokenLogProbs(text);
    // Some answer with one more token behind the prompt.
    if (found === undefined || found.length < tokenIds.length) {
      throw this.#fault(
        `it gave ${found?.length ?? 'no'} log-probabilities of a prompt of ${tokenIds.length} tokens; it must repeat prompts (echo) with log-probabilities`,
      );
    }
    return found;
  }

  #fault(message: string, cause?: unknown): EndpointError {
    return new EndpointError(`policy.reference_endpoint: ${this.#settings.url}: ${message}`, cause);
  }
}

function tokenLogProbs(text: string): readonly (number | null)[] | undefined {
  try {
    const list = (JSON.parse(text) as Reply).choices?.[0]?.logprobs?.token_logprobs;
    return Array.isArray(list) ? list : undefined;
  } catch {
    return undefined;
  }
}
