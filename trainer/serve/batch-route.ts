import type { ServerResponse } from 'node:http';
import type { FastifyInstance } from 'fastify';
import Type, { type Static } from 'typebox';
import { closed } from '../../shared/schema/type.ts';
import type { Generation } from '../generation/generation.ts';
import { clientGone } from './openai/errors.ts';
import type { LanguageModel } from './openai/language-model.ts';
import { checkedPrompt, completionOptions } from './openai/requests.ts';
import { apiErrorOf, type CompletionEnd, type CompletionHost } from './openai/routes.ts';
import { bodyParser, SAMPLING_FIELDS, TOKEN_GRAMMAR, TokenIds } from './openai/schemas.ts';

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
    const { signal } = clientGone(request, reply);
    const lines = lineWriter(reply.raw);
    await Promise.all(
      body.requests.map(async (one, index) => {
        const began = performance.now();
        let leave = () => {};
        let outcome: CompletionEnd['outcome'] = 'failed';
        let completionTokens = 0;
        try {
          leave = host.enter(1);
          const { tokenIds, logProbs, finishReason } = await sampled(one, body, model, signal);
          completionTokens = tokenIds.length;
          outcome = 'finished';
          const finish_reason = finishReason === 'stop' ? 'stop' : 'length';
          lines({ index, token_ids: [...tokenIds], logprobs: [...logProbs], finish_reason });
        } catch (error) {
          const refusal = apiErrorOf(error);
          if (refusal.status >= 500 && !signal.aborted) request.log.error(error);
          lines({ index, error: { ...refusal.body.error, status: refusal.status } });
        } finally {
          leave();
          host.onEnd?.({
            kind: 'completion',
            model: model.name,
            outcome: signal.aborted ? 'aborted' : outcome,
            promptTokens: one.prompt.length,
            completionTokens,
            seconds: (performance.now() - began) / 1000,
          });
        }
      }),
    );
    // Node would send the end before lines that are corked.
    if (reply.raw.writableCorked > 0) reply.raw.uncork();
    reply.raw.end();
    return reply;
  });
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

/** Begins a reply. @returns writes a line of it; those of one turn of the event loop are sent together */
function lineWriter(response: ServerResponse): (line: object) => void {
  response.writeHead(200, {
    'content-type': 'application/x-ndjson; charset=utf-8',
    'cache-control': 'no-store',
  });
  return line => {
    if (response.destroyed) return;
    if (response.writableCorked === 0) {
      response.cork();
      setImmediate(() => response.uncork());
    }
    response.write(`${JSON.stringify(line)}\n`);
  };
}
