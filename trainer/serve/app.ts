import { maxHeaderSize } from 'node:http';
import Fastify, {
  type FastifyBaseLogger,
  type FastifyInstance,
  type FastifyRequest,
  LogController,
} from 'fastify';
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { joinChunks } from '../../shared/http/chunks.ts';
import { outputLog } from '../../shared/log-text.ts';
import { VERSION } from '../../shared/program.ts';
import { inSlices, type Sliced } from '../../shared/slices.ts';
import { withoutQuery } from '../../shared/text.ts';
import type { Tokenizer } from '../models/tokenizer/tokenizer.ts';
import { Access, type AccessSettings, Budget, KeyShares, keyOf } from './access.ts';
import { batchRoute } from './batch-route.ts';
import type { Models, ServedModel } from './models.ts';
import { badRequest, clientGone } from './openai/errors.ts';
import { chatPrompt, checkTokenIds, encoded } from './openai/requests.ts';
import {
  apiErrorOf,
  type CompletionEnd,
  type CompletionHost,
  completionRoutes,
  refuseUnknown,
  sendError,
} from './openai/routes.ts';
import {
  bodyParser,
  DetokenizeRequestSchema,
  LoadAdapterSchema,
  TokenizeRequestSchema,
  UnloadAdapterSchema,
} from './openai/schemas.ts';
import { tinkerRoutes } from './tinker/routes.ts';
import type { TinkerServer } from './tinker/server.ts';

const BODY_LIMIT_BYTES = 4 * 2 ** 20;
/** Bodies of all open requests together. */
const BODIES_LIMIT_BYTES = 256 * 2 ** 20;
/** Log levels at which every request is logged. */
const REQUESTS_LOGGED: ReadonlySet<string> = new Set(['info', 'debug']);
const REQUEST_TIMEOUT_MS = 30_000;
const LONGEST_REQUEST_ID = 128;

export interface ServeAppOptions extends AccessSettings {
  readonly models: Models;
  /** Trains adapters for clients of the Tinker API, at `/api/v1`. */
  readonly tinker?: TinkerServer;
  /** Responses that are sampled at once, or wait for it; more are refused with 429. */
  readonly maxStreams: number;
  readonly logLevel: 'silent' | 'error' | 'warn' | 'info' | 'debug';
}

/** The server of `ragen serve`, not listening yet. @throws Error where others could reach it without a token */
export function createServeApp({
  models,
  tinker,
  maxStreams,
  logLevel,
  ...who
}: ServeAppOptions): FastifyInstance {
  const access = new Access(who);
  const full = (why: string) => `the server is at its capacity: ${why}; try again later`;
  const streams = new Budget(maxStreams, used =>
    full(`${used} of ${maxStreams} responses are being sampled`),
  );
  const bodies = new Budget(BODIES_LIMIT_BYTES, () => full('the bodies of open requests fill the memory'));
  const shares = new KeyShares(bodies, () => full('the bodies of open requests of this key fill its share'));
  const metrics = new ServeMetrics(models, streams, bodies);
  const app = Fastify({
    loggerInstance: outputLog(logLevel).child(
      {},
      { serializers: { req: loggedRequest } },
    ) as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: !REQUESTS_LOGGED.has(logLevel) }),
    bodyLimit: BODY_LIMIT_BYTES,
    requestTimeout: REQUEST_TIMEOUT_MS,
    requestIdHeader: false,
    forceCloseConnections: true,
    http: { maxHeaderSize },
  });
  joinChunks(app);
  app.addHook('onRequest', async (request, reply) => {
    const given = request.headers['x-request-id'];
    if (typeof given === 'string' && given.length <= LONGEST_REQUEST_ID) reply.header('x-request-id', given);
    else reply.header('x-request-id', request.id);
    if (request.url.startsWith('/health')) return;
    access.client(request.headers);
    if (request.method !== 'POST') return;
    const { bodyLimit = BODY_LIMIT_BYTES } = request.routeOptions;
    const announced = Number(request.headers['content-length'] ?? bodyLimit);
    const giveBack = shares.take(keyOf(request.headers) ?? '', Math.min(bodyLimit, announced));
    reply.raw.once('close', giveBack);
  });
  app.setErrorHandler((error, request, reply) => {
    if (apiErrorOf(error).status === 401) reply.header('www-authenticate', 'Bearer');
    return sendError(error, request, reply);
  });
  app.setNotFoundHandler(refuseUnknown);
  app.get('/health', async () => ({ status: 'ok' }));
  app.get('/version', async () => ({ version: VERSION }));
  app.get('/metrics', async (_, reply) =>
    reply.type(metrics.registry.contentType).send(await metrics.registry.metrics()),
  );
  tokenizerRoutes(app, models, streams);
  adapterRoutes(app, models, access, name => metrics.forget(name));
  const host: CompletionHost = {
    model: name => models.named(name),
    mostChoices: maxStreams,
    enter: choices => streams.take(choices),
    onEnd: end => metrics.observe(end),
  };
  completionRoutes(app, '/v1', host);
  batchRoute(app, host);
  if (tinker) app.register(async api => tinkerRoutes(api, tinker), { prefix: '/api/v1' });
  app.addHook('onClose', async () => {
    await tinker?.close();
    await models.close();
  });
  return app;
}

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** Metrics of `GET /metrics`, for Prometheus. */
class ServeMetrics {
  readonly registry = new Registry();
  readonly #requests = this.#counter(
    'requests_total',
    'Completion requests by route, model and outcome (finished, failed, aborted by the client)',
    ['route', 'model', 'outcome'],
  );
  readonly #promptTokens = this.#counter('prompt_tokens_total', 'Tokens of prompts', ['model']);
  readonly #completionTokens = this.#counter('completion_tokens_total', 'Tokens sampled', ['model']);
  readonly #seconds = this.#histogram('request_seconds', 'Time from a request to the end of its reply');
  readonly #firstToken = this.#histogram(
    'first_token_seconds',
    'Time from a streamed request to its first token',
  );

  constructor(models: Models, streams: Budget, bodies: Budget) {
    const gauge = (name: string, help: string, value: () => number) =>
      new Gauge({
        name: `ragen_serve_${name}`,
        help,
        registers: [this.registry],
        collect() {
          this.set(value());
        },
      });
    gauge('open_responses', 'Responses that are being sampled or wait for it', () => streams.used);
    gauge('adapters', 'Adapters that are loaded', () => models.all.length - 1);
    new Counter({
      name: 'ragen_serve_refused_total',
      help: 'Requests refused with 429',
      registers: [this.registry],
      collect() {
        this.reset();
        this.inc(streams.refused + bodies.refused);
      },
    });
  }

  #counter(name: string, help: string, labelNames: string[]): Counter {
    return new Counter({ name: `ragen_serve_${name}`, help, labelNames, registers: [this.registry] });
  }

  #histogram(name: string, help: string): Histogram {
    const labelNames = ['route'];
    const registers = [this.registry];
    return new Histogram({ name: `ragen_serve_${name}`, help, labelNames, buckets: SECONDS, registers });
  }

  observe(end: CompletionEnd): void {
    const { kind: route, model, outcome } = end;
    this.#requests.inc({ route, model, outcome });
    this.#promptTokens.inc({ model }, end.promptTokens);
    this.#completionTokens.inc({ model }, end.completionTokens);
    this.#seconds.observe({ route }, end.seconds);
    if (end.firstTokenSeconds !== undefined) this.#firstToken.observe({ route }, end.firstTokenSeconds);
  }

  /** Forgets the counts of a model that was unloaded, so that versions of a run do not pile up. */
  forget(model: string): void {
    for (const route of ['chat', 'completion']) {
      for (const outcome of ['finished', 'failed', 'aborted'])
        this.#requests.remove({ route, model, outcome });
    }
    this.#promptTokens.remove({ model });
    this.#completionTokens.remove({ model });
  }
}

/** A request in the log. */
function loggedRequest({ method, url, host, ip, socket }: FastifyRequest): object {
  return { method, url: withoutQuery(url), host, remoteAddress: ip, remotePort: socket.remotePort };
}

const parseLoad = bodyParser(LoadAdapterSchema);
const parseUnload = bodyParser(UnloadAdapterSchema);

/**
 * `GET /v1/models`, and vLLM's routes that load and unload adapters, which want the admin token.
 * @param onUnload called with each name that is gone
 */
function adapterRoutes(
  app: FastifyInstance,
  models: Models,
  access: Access,
  onUnload: (name: string) => void,
): void {
  app.get('/v1/models', async () => ({
    object: 'list',
    data: models.all.map(model => describe(model, models.base)),
  }));
  app.get<{ Params: { '*': string } }>('/v1/models/*', async ({ params }) =>
    describe(models.named(params['*']), models.base),
  );
  app.post('/v1/load_lora_adapter', async (request, reply) => {
    access.admin(request.headers);
    const { lora_name, lora_path, load_inplace } = parseLoad(request.body);
    if (load_inplace) {
      throw badRequest('load_inplace is not supported: load each version under its own name', 'load_inplace');
    }
    await models.load(lora_name, lora_path);
    return reply.type('text/plain').send(`Success: LoRA adapter '${lora_name}' added successfully.`);
  });
  app.post('/v1/unload_lora_adapter', async (request, reply) => {
    access.admin(request.headers);
    const { lora_name } = parseUnload(request.body);
    await models.unload(lora_name);
    onUnload(lora_name);
    return reply.type('text/plain').send(`Success: LoRA adapter '${lora_name}' removed successfully.`);
  });
}

function describe(model: ServedModel, base: ServedModel): object {
  return {
    id: model.name,
    object: 'model',
    created: model.created,
    owned_by: 'ragen',
    root: model.folder,
    parent: model === base ? null : base.name,
    max_model_len: model.maxSequenceLength,
  };
}

const parseTokenize = bodyParser(TokenizeRequestSchema);
const parseDetokenize = bodyParser(DetokenizeRequestSchema);
/** To decode a million ids takes a second. */
const MAX_DETOKENIZED = 2 ** 17;

/** `POST /tokenize` and `/detokenize`, as vLLM has them. */
function tokenizerRoutes(app: FastifyInstance, models: Models, streams: Budget): void {
  app.post('/tokenize', async (request, reply) => {
    const body = parseTokenize(request.body);
    const model = models.named(body.model ?? undefined);
    const { tokenizer, maxSequenceLength } = model;
    const { signal } = clientGone(request, reply);
    const { messages, prompt } = body;
    if ((messages === undefined) === (prompt === undefined)) {
      throw badRequest('give either prompt or messages', 'prompt');
    }
    const leave = streams.take();
    let tokens: readonly number[];
    try {
      const text = messages ? await chatPrompt({ ...body, messages }, model, signal) : prompt!;
      tokens = await encoded(text, model, messages ? 'messages' : 'prompt', signal);
    } finally {
      leave();
    }
    return {
      count: tokens.length,
      max_model_len: maxSequenceLength,
      tokens,
      token_strs: body.return_token_strs ? await inSlices(tokenTexts(tokens, tokenizer)) : null,
    };
  });
  app.post('/detokenize', async (request, reply) => {
    const { model, tokens } = parseDetokenize(request.body);
    const { tokenizer, encoder } = models.named(model ?? undefined);
    if (tokens.length > MAX_DETOKENIZED) {
      throw badRequest(`${tokens.length} tokens are more than ${MAX_DETOKENIZED}: ask for parts`, 'tokens');
    }
    checkTokenIds(tokens, tokenizer, 'tokens');
    return { prompt: await encoder.decode(tokens, clientGone(request, reply).signal) };
  });
}

function* tokenTexts(tokens: readonly number[], tokenizer: Tokenizer): Sliced<string[]> {
  const texts: string[] = [];
  for (const id of tokens) {
    texts.push(tokenizer.decode([id]));
    yield;
  }
  return texts;
}
