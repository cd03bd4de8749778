import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Type, { type Static } from 'typebox';
import { closed } from '../../shared/schema/closed.ts';
import type { Generation } from '../generation/generation.ts';
import type { LanguageModel } from './openai/language-model.ts';
import { completionOptions } from './openai/options.ts';
import { bodyParser } from './openai/parse.ts';
import { checkedPrompt } from './openai/prompts.ts';
import { apiErrorOf, type CompletionHost } from './openai/routes.ts';
import { SAMPLING_FIELDS, TOKEN_GRAMMAR, TokenIds } from './openai/schemas.ts';

/** Most prompts of one request. */
const MAX_BATCHED = 64;

export const BatchSchema = closed({
  model: Type.Optional(Type.String({ minLength: 1 })),
  token_grammar: TOKEN_GRAMMAR,
  requests: Type.Array(
    closed({ ...SAMPLING_FIELDS, prompt: TokenIds, max_tokens: Type.Integer({ minimum: 1 }) }),
    { minItems: 1, maxItems: MAX_BATCHED },
  ),
});
type BatchRequest = Static<typeof BatchSchema>;

const parseBatch = bodyParser(BatchSchema);

/**
 * `POST /v1/completions/batch`: prompts in token ids, each with separate settings and seed, for trainers with responses
 * so short that a request each would cost more than the tokens. Replies with a line of JSON for each prompt when its
 * response is complete: `{index, token_ids, logprobs, finish_reason}`, or `{index, error}`. Only the stop tokens of a
 * request end its response.
 */
export function batchRoute(app: FastifyInstance, host: CompletionHost): void {
  app.post('/v1/completions/batch', async (request, reply) => {
    const body = parseBatch(request.body);
    const model = host.model(body.model, request);
    reply.hijack();
    const lines = new LineWriter(reply, request);
    await Promise.all(
      body.requests.map((one, index) => {
        const call = (signal: AbortSignal) => sampled(one, body, model, signal);
        return lines.answer({ index, call, promptTokens: one.prompt.length }, model, host);
      }),
    );
    lines.end();
    return reply;
  });
}

/** A prompt of a request. */
interface Prompt {
  readonly index: number;
  readonly promptTokens: number;
  /** Samples its response. @throws ApiError 400 */
  readonly call: (signal: AbortSignal) => Promise<Generation>;
}

/** @throws ApiError 400 */
function sampled(
  one: BatchRequest['requests'][0],
  { token_grammar }: BatchRequest,
  model: LanguageModel,
  signal: AbortSignal,
): Promise<Generation> {
  const { sampling, seed, grammar } = completionOptions({ ...one, token_grammar, ignore_eos: true }, model);
  const promptIds = checkedPrompt(one.prompt, model);
  const maxNewTokens = Math.min(sampling.maxNewTokens, model.maxSequenceLength - promptIds.length);
  const asked = { promptIds, sampling: { ...sampling, maxNewTokens }, seed };
  return model.generate(grammar ? { ...asked, grammar } : asked, signal);
}

/** Writes the lines of a reply; those of one turn of the event loop together. A disconnected client ends the work. */
class LineWriter {
  readonly #response: FastifyReply['raw'];
  readonly #gone = new AbortController();
  readonly #log: FastifyRequest['log'];
  #lines = '';

  constructor({ raw }: FastifyReply, { log }: FastifyRequest) {
    this.#response = raw;
    this.#log = log;
    raw.writeHead(200, {
      'content-type': 'application/x-ndjson; charset=utf-8',
      'cache-control': 'no-store',
    });
    raw.once('close', () => this.#gone.abort(new Error('the client went away')));
  }

  /** Samples a response and writes its line. */
  async answer(
    { index, call, promptTokens }: Prompt,
    model: LanguageModel,
    host: CompletionHost,
  ): Promise<void> {
    const began = performance.now();
    let leave = () => {};
    let tokens = 0;
    let failed = true;
    try {
      leave = host.enter(1);
      const { tokenIds, logProbs, finishReason } = await call(this.#gone.signal);
      tokens = tokenIds.length;
      failed = false;
      this.#write({
        index,
        token_ids: [...tokenIds],
        logprobs: [...logProbs],
        finish_reason: finishReason === 'stop' ? 'stop' : 'length',
      });
    } catch (error) {
      const refusal = apiErrorOf(error);
      if (refusal.status >= 500 && !this.#gone.signal.aborted) this.#log.error(error);
      this.#write({ index, error: { ...refusal.body.error, status: refusal.status } });
    } finally {
      leave();
      const ended = failed ? 'failed' : 'finished';
      host.onEnd?.({
        kind: 'completion',
        model: model.name,
        outcome: this.#gone.signal.aborted ? 'aborted' : ended,
        promptTokens,
        completionTokens: tokens,
        seconds: (performance.now() - began) / 1000,
      });
    }
  }

  end(): void {
    this.#flush();
    this.#response.end();
  }

  #write(line: object): void {
    if (this.#gone.signal.aborted) return;
    if (this.#lines === '') setImmediate(() => this.#flush());
    this.#lines += `${JSON.stringify(line)}\n`;
  }

  #flush(): void {
    const lines = this.#lines;
    this.#lines = '';
    if (lines !== '' && !this.#response.writableEnded) this.#response.write(lines);
  }
}
