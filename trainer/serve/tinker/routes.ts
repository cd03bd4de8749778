import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { zstdDecompress } from 'node:zlib';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { TSchema } from 'typebox';
import type { JsonObject } from '../../../shared/json.ts';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardOutput,
  type ForwardBackwardRequest,
  TinkerProtocolError,
} from '../../tinker/proto.ts';
import * as wire from '../../tinker/wire.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import { bodyParser } from '../openai/parse.ts';
import { apiErrorOf } from '../openai/routes.ts';
import type { Result } from './futures.ts';
import { readLoss } from './losses.ts';
import { samplingRoutes } from './sampling-routes.ts';
import { hashOf, ownerOf, type TinkerServer, type TinkerSession } from './server.ts';
import type { TrainingModel } from './training-model.ts';

const PROTOBUF = 'application/x-protobuf';
const TRAINING_BODY_BYTES = 64 * 2 ** 20;
/** Bytes of a key's training requests that wait or run. */
const MAX_WAITING_BYTES = 256 * 2 ** 20;

const decompress = promisify(zstdDecompress);
const parserOf = <S extends TSchema>(schema: S) => bodyParser(schema, () => {});
const parse = {
  session: parserOf(wire.SessionRequest),
  createSession: parserOf(wire.CreateSessionRequest),
  createModel: parserOf(wire.CreateModelRequest),
  model: parserOf(wire.ModelRequest),
  optimStep: parserOf(wire.OptimStepRequest),
  save: parserOf(wire.SaveWeightsRequest),
  saveForSampler: parserOf(wire.SaveWeightsForSamplerRequest),
  load: parserOf(wire.LoadWeightsRequest),
  future: parserOf(wire.RetrieveFutureRequest),
  weights: parserOf(wire.WeightsInfoRequest),
};

/** The routes of the Tinker API behind a prefix, which is `/api/v1`. */
export function tinkerRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.addContentTypeParser(PROTOBUF, { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.setErrorHandler((error, request, reply) => {
    const problem = error instanceof TinkerProtocolError ? badRequest(error.message) : apiErrorOf(error);
    if (problem.status >= 500) request.log.error(error);
    if (problem.retryAfterS !== undefined) reply.header('retry-after', problem.retryAfterS);
    return reply.status(problem.status).send({ detail: problem.message } satisfies wire.ErrorReply);
  });
  sessionRoutes(app, server);
  modelRoutes(app, server);
  trainingRoutes(app, server);
  checkpointRoutes(app, server);
  samplingRoutes(app, server);
}

function sessionRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.post('/client/config', async () => ({ sample_max_concurrent_requests: server.maxOpenSamples }));
  app.post('/client/dynamic_config', async () => ({ refresh_interval_sec: 300 }));
  app.post('/telemetry', async () => ({ status: 'accepted' }));
  app.get('/get_server_capabilities', async (): Promise<wire.CapabilitiesReply> => {
    const model = { model_name: server.name, max_context_length: server.maxLength };
    return { supported_models: [{ ...model, trainable: true, sampleable: true }] };
  });
  app.post('/create_session', async (request): Promise<wire.SessionReply> => {
    parse.createSession(request.body);
    return { session_id: server.createSession(ownerOf(request)).id };
  });
  app.post('/session_heartbeat', async request => {
    server.session(parse.session(request.body).session_id, ownerOf(request));
    return {};
  });
  app.post<{ Params: { id: string } }>('/sessions/:id/finish', async request => {
    await server.endSession(server.session(request.params.id, ownerOf(request)));
    return {};
  });
  app.post('/retrieve_future', async (request, reply) => {
    const { request_id: id } = parse.future(request.body);
    const wait = new AbortController();
    const timer = setTimeout(() => wait.abort(), server.pollMs);
    reply.raw.once('close', () => wait.abort());
    const owner = ownerOf(request);
    const result = await server.futures
      .read(id, session => server.isAlive(session as TinkerSession, owner), wait.signal)
      .finally(() => clearTimeout(timer));
    if (result === undefined) {
      const pending: wire.PendingFuture = { type: 'try_again', request_id: id, queue_state: 'active' };
      return reply.status(408).send(pending);
    }
    return result instanceof Uint8Array ? reply.type(PROTOBUF).send(result) : result;
  });
}

function modelRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.post('/create_model', async (request): Promise<wire.FutureReply> => {
    const body = parse.createModel(request.body);
    const session = server.session(body.session_id, ownerOf(request));
    server.checkBase(body.base_model);
    const lora = server.loraOf(body.lora_config);
    const { type = 'adamw' } = body.optimizer_config ?? {};
    if (type !== 'adamw') {
      throw badRequest(
        `optimizer_config.type ${JSON.stringify(type)} is not supported; use adamw`,
        'optimizer_config',
      );
    }
    const id = `${session.id}:train:${body.model_seq_id}`;
    return server.opening(session, id, hashOf(body), async (): Promise<wire.ModelResult> => {
      await server.createModel(session, id, { lora, seed: body.lora_config.seed });
      return { model_id: id };
    });
  });
  app.post('/load_weights', async (request): Promise<wire.FutureReply> => {
    const body = parse.load(request.body);
    const owner = ownerOf(request);
    const { path, optimizer, model_id, seq_id, session_id, model_seq_id } = body;
    const checkpoint = await server.checkpoints.find(path, owner);
    const { folder, base_model } = checkpoint;
    server.checkBase(body.base_model ?? base_model);
    if (typeof model_id === 'string' && typeof seq_id === 'number') {
      return numbered(server, request, { model_id, seq_id }, body, async ({ model }) => {
        await model.load(folder, optimizer === true);
        return { path, model_id } satisfies wire.LoadWeightsResult;
      });
    }
    if (typeof session_id !== 'string' || typeof model_seq_id !== 'number') {
      throw badRequest(
        'load_weights takes session_id and model_seq_id, or model_id and seq_id',
        'session_id',
      );
    }
    const session = server.session(session_id, owner);
    const id = `${session.id}:train:${model_seq_id}`;
    return server.opening(session, id, hashOf(body), async (): Promise<wire.LoadWeightsResult> => {
      await server.createModel(session, id, {
        lora: server.adapterOf(checkpoint).lora,
        folder,
        optimizer: optimizer === true,
      });
      return { path, model_id: id };
    });
  });
  app.post('/get_info', async (request): Promise<wire.ModelInfoReply> => {
    const { model } = server.model(parse.model(request.body).model_id, ownerOf(request));
    const { name: model_name, architecture: arch, tokenizerFolder: tokenizer_id } = server;
    const model_data = { arch, model_name, tokenizer_id };
    return { model_id: model.id, model_data, is_lora: true, lora_rank: model.lora.rank };
  });
  app.post('/unload_model', async (request): Promise<wire.FutureReply> => {
    const { session, model } = server.model(parse.model(request.body).model_id, ownerOf(request));
    const work = server.unloadModel(session, model.id).then((): wire.ModelResult => ({ model_id: model.id }));
    return { request_id: server.futures.add(session, work), model_id: model.id };
  });
}

function trainingRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.post(
    '/forward_backward',
    { bodyLimit: TRAINING_BODY_BYTES },
    async (request): Promise<wire.FutureReply> => {
      const bytes = await bodyBytes(request);
      const decoded = decodeForwardBackwardRequest(bytes);
      const { modelId, seqId, forwardOnly } = decoded;
      const owner = ownerOf(request);
      const { session, model } = server.model(modelId, owner);
      const waits = server.sumOf('waitingBytes', owner);
      if (waits + bytes.length > MAX_WAITING_BYTES) {
        const waiting = `${Math.round(waits / 2 ** 20)} MiB of training requests wait`;
        throw new ApiError(429, `${waiting}; send more when some are done`, { retryAfterS: 1 });
      }
      try {
        const { vocabularySize, maxLength } = server;
        const loss = readLoss(decoded, { vocabularySize, maxLength: maxLength - 1 });
        const place = { seqId, fingerprint: contentOf(decoded), ordered: false };
        const request_id = model.operations.submit(
          place,
          async () => encodeForwardBackwardOutput(await model.forwardBackward(seqId, loss, forwardOnly)),
          result => {
            const id = server.futures.add(session, result);
            session.waitingBytes += bytes.length;
            const over = () => {
              session.waitingBytes -= bytes.length;
            };
            result.then(over, over);
            return id;
          },
        );
        return { request_id, model_id: model.id };
      } catch (error) {
        const { status, message } = error as ApiError;
        if (status === 400) model.operations.refuse(seqId, message, !forwardOnly);
        throw error;
      }
    },
  );
  app.post('/optim_step', async request => {
    const body = parseNumbered(server, request, parse.optimStep);
    return numbered(server, request, body, body, async ({ model }): Promise<wire.OptimStepResult> => {
      if (body.optimizer_params) {
        throw badRequest('optimizer_params is not supported: send adam_params', 'optimizer_params');
      }
      const adam = body.adam_params ?? {};
      const metrics = await model.step(body.seq_id, {
        learningRate: adam.learning_rate ?? 1e-4,
        beta1: adam.beta1 ?? 0.9,
        beta2: adam.beta2 ?? 0.95,
        epsilon: adam.eps ?? 1e-12,
        weightDecay: adam.weight_decay ?? 0,
        clipNorm: adam.grad_clip_norm ?? 0,
      });
      return { metrics };
    });
  });
}

function checkpointRoutes(app: FastifyInstance, server: TinkerServer): void {
  const { checkpoints } = server;
  const save = (
    model: TrainingModel,
    kind: 'weights' | 'sampler_weights',
    body: wire.SaveWeightsRequest,
    owner: string,
  ) =>
    model.save(kind === 'weights', write =>
      checkpoints.save(
        model.id,
        {
          kind,
          name: body.path,
          owner,
          baseModel: server.name,
          ttlSeconds: body.ttl_seconds,
          overwrite: body.overwrite,
        },
        write,
        server.usesCheckpoint,
      ),
    );
  app.post('/save_weights', async request => {
    const body = parseNumbered(server, request, parse.save);
    return numbered(
      server,
      request,
      body,
      body,
      async ({ model }): Promise<wire.SaveWeightsResult> => ({
        path: await save(model, 'weights', body, ownerOf(request)),
      }),
    );
  });
  app.post('/save_weights_for_sampler', async request => {
    const body = parseNumbered(server, request, parse.saveForSampler);
    return numbered(server, request, body, body, async ({ session, model }): Promise<object> => {
      const { path, sampling_session_seq_id: number, kind } = body;
      if (typeof path === 'string') {
        return {
          path: await save(model, 'sampler_weights', { ...body, path }, ownerOf(request)),
        } satisfies wire.SaveWeightsResult;
      }
      if (typeof number !== 'number') throw badRequest('send path, or sampling_session_seq_id', 'path');
      const weights =
        kind === 'inflight' ? () => model.snapshot() : await model.snapshot().then(now => async () => now);
      const { id } = server.addSampler(session, number, { fingerprint: hashOf(body), path: null, weights });
      return { sampling_session_id: id } satisfies wire.SamplingSessionResult;
    });
  });
  app.post('/weights_info', async (request): Promise<wire.WeightsInfoReply> => {
    const { tinker_path: path } = parse.weights(request.body);
    const { base_model, lora } = await checkpoints.find(path, ownerOf(request));
    const has = (part: string) => lora.modules.some(module => module.startsWith(part));
    const trained = { train_unembed: false, train_mlp: has('up') || has('gate'), train_attn: has('q') };
    return { base_model, is_lora: true, lora_rank: lora.rank, ...trained };
  });
  app.get<{ Params: { id: string } }>('/training_runs/:id', async request => {
    const owner = ownerOf(request);
    const { model } = server.model(request.params.id, owner);
    const { id: training_run_id, created: last_request_time, lora } = model;
    return {
      training_run_id,
      base_model: server.name,
      model_owner: owner,
      is_lora: true,
      lora_rank: lora.rank,
      last_request_time,
    };
  });
  app.get<{ Params: { id: string } }>('/training_runs/:id/checkpoints', async request => ({
    checkpoints: await checkpoints.list(request.params.id, ownerOf(request)),
  }));
  app.delete<{ Params: { id: string; '*': string } }>(
    '/training_runs/:id/checkpoints/*',
    async (request, reply) => {
      await checkpoints.delete(`tinker://${request.params.id}/${request.params['*']}`, ownerOf(request));
      return reply.status(204).send();
    },
  );
}

/** Checks the body of a numbered request; one that is refused uses its number up, so that no other waits for it. */
function parseNumbered<T>(server: TinkerServer, request: FastifyRequest, check: (body: unknown) => T): T {
  try {
    return check(request.body);
  } catch (error) {
    const { model_id, seq_id } = (request.body ?? {}) as JsonObject;
    if (typeof model_id === 'string' && Number.isSafeInteger(seq_id)) {
      server
        .model(model_id, ownerOf(request))
        .model.operations.refuse(seq_id as number, (error as Error).message, false);
    }
    throw error;
  }
}

/** Submits an operation that waits for all smaller numbers of its model. */
async function numbered(
  server: TinkerServer,
  request: FastifyRequest,
  { model_id, seq_id: seqId }: { readonly model_id: string; readonly seq_id: number },
  content: object,
  work: (found: { readonly session: TinkerSession; readonly model: TrainingModel }) => Promise<Result>,
): Promise<wire.FutureReply> {
  const found = server.model(model_id, ownerOf(request));
  const place = { seqId, fingerprint: hashOf(content), ordered: true };
  const request_id = found.model.operations.submit(
    place,
    () => work(found),
    result => server.futures.add(found.session, result),
  );
  return { request_id, model_id };
}

/** The body of a protobuf request, unpacked. @throws ApiError 413 or 415 */
async function bodyBytes({ body, headers }: FastifyRequest): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (!Buffer.isBuffer(body)) throw new ApiError(415, `forward_backward takes ${PROTOBUF} alone`);
  if (encoding === 'identity') return body;
  if (encoding !== 'zstd') throw new ApiError(415, `content-encoding ${encoding} is not supported; use zstd`);
  return decompress(body, { maxOutputLength: TRAINING_BODY_BYTES }).catch(error => {
    if (error.code === 'ERR_BUFFER_TOO_LARGE') {
      throw new ApiError(
        413,
        `the body has more than ${TRAINING_BODY_BYTES / 2 ** 20} MiB when it is unpacked`,
      );
    }
    throw badRequest(`the body is not zstd: ${error.message}`);
  });
}

/** Hash of a request's content; its maps have no order. */
function contentOf({ data, lossFn, lossConfig, forwardOnly }: ForwardBackwardRequest): string {
  const hash = createHash('sha256').update(
    JSON.stringify([lossFn, Object.entries(lossConfig).sort(), forwardOnly]),
  );
  for (const { tokens, inputs } of data) {
    hash.update(`${tokens.length}`).update(tokens);
    for (const [name, { values, shape }] of [...inputs].sort(([a], [b]) => (a < b ? -1 : 1))) {
      hash.update(JSON.stringify([name, shape])).update(values);
    }
  }
  return hash.digest('base64');
}
