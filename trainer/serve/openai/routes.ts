import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type CompletionTask, chatTask, complete, completionTask, EventStream, stream } from './complete.ts';
import { ApiError, clientGone } from './errors.ts';
import type { LanguageModel } from './language-model.ts';
import {
  chatPlaces,
  completionPlaces,
  completionPrompts,
  conversationPrompt,
  jsonGrammarOf,
} from './requests.ts';
import { usageOf } from './responses.ts';
import { bodyParser, ChatRequestSchema, CompletionRequestSchema, fieldsWithoutEffect } from './schemas.ts';

/** Source of models and of room for requests. */
export interface CompletionHost {
  /**
   * The model that answers a request.
   * @param name as the request says it; undefined where it does not
   * @throws ApiError 404 where there is none
   */
  model(name: string | undefined, request: FastifyRequest): LanguageModel;
  /** Most choices of one request. */
  readonly mostChoices: number;
  /**
   * Takes places for choices, to be given back when the request is over.
   * @throws ApiError 429 where there are none
   */
  enter(choices: number): () => void;
  /** Called when a request is over. */
  readonly onEnd?: (end: CompletionEnd) => void;
}

/** Outcome of a request. */
export interface CompletionEnd {
  readonly kind: CompletionTask['kind'];
  readonly model: string;
  readonly outcome: 'finished' | 'failed' | 'aborted';
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly seconds: number;
  /** Until the first token; absent for replies that are not streamed. */
  readonly firstTokenSeconds?: number;
}

/** Header that lists the fields of a request that had no effect. */
const WITHOUT_EFFECT_HEADER = 'x-ragen-without-effect';

const parseChat = bodyParser(ChatRequestSchema);
const parseCompletion = bodyParser(CompletionRequestSchema);

/**
 * `POST <prefix>/chat/completions` and `<prefix>/completions`.
 * @param prefix path up to and with the version, e.g. `/v1`
 */
export function completionRoutes(app: FastifyInstance, prefix: string, host: CompletionHost): void {
  // The model is looked for again behind each wait: its adapter may have been unloaded meanwhile.
  app.post(`${prefix}/chat/completions`, async (request, reply) => {
    const body = parseChat(request.body);
    const model = () => host.model(body.model ?? undefined, request);
    return answer(host, request, reply, chatPlaces(body, host.mostChoices), async signal => {
      const json = await jsonGrammarOf(body, model());
      const prompt = await conversationPrompt(body, model(), signal);
      return chatTask(body, model(), prompt, json);
    });
  });
  app.post(`${prefix}/completions`, async (request, reply) => {
    const body = parseCompletion(request.body);
    const model = () => host.model(body.model ?? undefined, request);
    return answer(host, request, reply, completionPlaces(body, host.mostChoices), async signal => {
      const json = await jsonGrammarOf(body, model());
      const prompts = await completionPrompts(body, model(), signal);
      return completionTask(body, model(), prompts, json);
    });
  });
}

/**
 * Samples what was requested. A client that goes away ends the work.
 * @param places that it takes, from before its prompts are tokenized
 * @param prepare checks the request and tokenizes its prompts
 */
async function answer(
  host: CompletionHost,
  request: FastifyRequest,
  reply: FastifyReply,
  places: number,
  prepare: (signal: AbortSignal) => Promise<CompletionTask>,
): Promise<FastifyReply> {
  const leave = host.enter(places);
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  const gone = clientGone(request, reply);
  let task: CompletionTask;
  try {
    task = await prepare(gone.signal);
  } catch (error) {
    leave();
    if (!gone.signal.aborted) throw error;
    reply.hijack();
    return reply;
  }
  const headers = headersOf(request);
  const open = () => {
    reply.hijack();
    return new EventStream(reply.raw, headers);
  };
  let outcome: CompletionEnd['outcome'] = 'failed';
  let firstTokenSeconds: number | undefined;
  const onFirst = () => {
    firstTokenSeconds = elapsed();
  };
  try {
    if (task.options.stream) await stream(task, open, gone.signal, onFirst);
    else {
      const body = await complete(task, gone.signal);
      if (!gone.signal.aborted) reply.headers(headers).type('application/json; charset=utf-8').send(body);
    }
    outcome = 'finished';
  } catch (error) {
    if (gone.signal.aborted) outcome = 'aborted';
    else if (reply.raw.headersSent) {
      request.log.error(error);
      reply.raw.end(`data: ${JSON.stringify(apiErrorOf(error).body)}\n\n`);
    } else throw error;
  } finally {
    const { aborted } = gone.signal;
    const usage = usageOf(task.choices, task.options.n);
    // The tokens that other choices of the request still sample are no longer needed.
    gone.abort(new Error('the request is over'));
    leave();
    host.onEnd?.({
      kind: task.kind,
      model: task.model.name,
      outcome: aborted ? 'aborted' : outcome,
      promptTokens: usage.prompt_tokens,
      completionTokens: usage.completion_tokens,
      seconds: elapsed(),
      ...(firstTokenSeconds === undefined ? {} : { firstTokenSeconds }),
    });
    if (aborted && !reply.sent) reply.hijack();
  }
  return reply;
}

/** The error in the form of OpenAI's API. */
export function apiErrorOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const { statusCode = 500, message } = error as { readonly statusCode?: number; readonly message: string };
  if (statusCode < 500) return new ApiError(statusCode, message);
  return new ApiError(500, 'the server failed to answer; its log says why', { code: 'internal_error' });
}

/** Replies with an error; those of the server itself are logged. */
export function sendError(
  error: unknown,
  { log }: FastifyRequest,
  reply: FastifyReply,
  bodyOf = ({ body }: ApiError): object => body,
): FastifyReply {
  const problem = apiErrorOf(error);
  if (problem.status >= 500) log.error(error);
  if (problem.retryAfterS !== undefined) reply.header('retry-after', problem.retryAfterS);
  return reply.status(problem.status).send(bodyOf(problem));
}

/** @throws ApiError 404 for a request without a route */
export function refuseUnknown({ method, url }: FastifyRequest): never {
  const asked = `${method} ${url.split('?')[0].slice(0, 200)}`;
  throw new ApiError(
    404,
    `there is no ${asked} here: programs use OpenAI's API, such as POST …/v1/chat/completions`,
    { code: 'unknown_url' },
  );
}

function headersOf({ id, body }: FastifyRequest): Record<string, string> {
  const without = fieldsWithoutEffect(body as object);
  return {
    'x-request-id': id,
    ...(without.length > 0 ? { [WITHOUT_EFFECT_HEADER]: without.join(', ') } : {}),
  };
}
