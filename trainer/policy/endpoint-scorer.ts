import { HttpError, JsonClient } from '../../shared/http/json-client.ts';
import { type Backoff, backoffMs, retry } from '../../shared/http/retry.ts';
import { parseJson } from '../../shared/json.ts';
import { EndpointError, type EndpointSettings } from '../generation/endpoint/completions.ts';
import type { Policy, Score, ScoreRequest, ScoreSettings } from './policy.ts';

export type ScorerSettings = Pick<
  EndpointSettings,
  'url' | 'model' | 'apiKey' | 'concurrency' | 'attempts' | 'timeoutMs'
>;

const BACKOFF: Backoff = { firstMs: 500, maxMs: 30_000 };

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
  readonly #http: JsonClient;

  constructor(settings: ScorerSettings) {
    this.#settings = settings;
    const { url, apiKey: token, timeoutMs, concurrency: connections } = settings;
    this.#http = new JsonClient({ url, token, timeoutMs, connections });
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
    return this.#http.close();
  }

  async #scoreOne({ tokenIds, lossMask, grammar, allowed }: ScoreRequest): Promise<Score> {
    if (grammar !== undefined) throw new RangeError(`an endpoint does not know the grammar ${grammar}`);
    if (allowed !== undefined) throw new RangeError('an endpoint does not know which tokens were allowed');
    const found = await this.#ask(tokenIds);
    const logProbs = new Float32Array(tokenIds.length);
    const entropies = new Float32Array(tokenIds.length);
    for (let t = 0; t < tokenIds.length; t++) {
      if (!lossMask[t]) continue;
      const logProb = found[t];
      if (typeof logProb !== 'number' || !(logProb <= 0))
        throw this.#fault(`token ${t} has the log-probability ${logProb}, which is not a number up to 0`);
      logProbs[t] = logProb;
      entropies[t] = Number.NaN;
    }
    return { logProbs, entropies };
  }

  async #ask(tokenIds: Int32Array): Promise<readonly (number | null)[]> {
    const { model, attempts } = this.#settings;
    const prompt = Array.from(tokenIds);
    const body = JSON.stringify({ model, prompt, max_tokens: 0, echo: true, logprobs: 1, temperature: 1 });
    const text = await retry(
      () => this.#http.send('/completions', { method: 'POST', body }),
      (error, attempt) => {
        if (!(error instanceof HttpError)) throw error;
        if (!error.passing || attempt >= attempts) {
          throw new EndpointError(`policy.reference_endpoint: ${error.message}`, error);
        }
        return Math.max(error.retryAfterMs, backoffMs(BACKOFF, attempt));
      },
    );
    const found = tokenLogProbs(text);
    // Some answer with one more token behind the prompt.
    if (found === undefined || found.length < tokenIds.length) {
      throw this.#fault(
        `it gave ${found?.length ?? 'no'} log-probabilities of a prompt of ${tokenIds.length} tokens; it must repeat prompts (echo) with log-probabilities`,
      );
    }
    return found;
  }

  #fault(message: string): EndpointError {
    return new EndpointError(`policy.reference_endpoint: ${this.#settings.url}: ${message}`);
  }
}

function tokenLogProbs(text: string): readonly (number | null)[] | undefined {
  const list = (parseJson(text) as Reply | null | undefined)?.choices?.[0]?.logprobs?.token_logprobs;
  return Array.isArray(list) ? list : undefined;
}
