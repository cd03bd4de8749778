import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { serialize } from 'node:v8';
import { zstdDecompress } from 'node:zlib';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import Type, { type Static, type TSchema } from 'typebox';
import { networkOf } from '../../../shared/http/addresses.ts';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardOutput,
  type ForwardBackwardRequest,
  TinkerProtocolError,
} from '../../tinker/proto.ts';
import { ApiError, badRequest, clientGone } from '../openai/errors.ts';
import { bodyParser } from '../openai/parse.ts';
import { sendError } from '../openai/routes.ts';
import type { CheckpointKind } from './checkpoints.ts';
import type { Result } from './futures.ts';
import { readLoss } from './losses.ts';
import {
  hashOf,
  Id,
  LoraSettings,
  MaybeFlag,
  MaybeId,
  MaybeSequenceId,
  orNull,
  ownerOf,
  postRoute,
  SequenceId,
} from './requests.ts';
import { samplingRoutes } from './sampling-routes.ts';
import { MAX_SESSION_SAMPLES, type TinkerServer, type TinkerSession } from './server.ts';
import type { TrainingModel } from './training-model.ts';

const PROTOBUF = 'application/x-protobuf';
const TRAINING_BODY_BYTES = 64 * 2 ** 20;
const decompress = promisify(zstdDecompress);

const ModelRequest = Type.Object({ model_id: Id });
const Place = Type.Object({ model_id: Id, seq_id: SequenceId });
const saving = { ttl_seconds: orNull(Type.Integer({ minimum: 1 })), overwrite: MaybeFlag };
const PositiveOrZero = orNull(Type.Number({ minimum: 0 }));
const BelowOne = orNull(Type.Number({ minimum: 0, exclusiveMaximum: 1 }));

type Kind = {
  readonly content: string;
  readonly ordered: boolean;
  readonly bytes?: number;
  readonly learns?: boolean;
};
type Found = { readonly session: TinkerSession; readonly model: TrainingModel; readonly seqId: number };

/**
 * The routes of the Tinker API behind a prefix, which is `/api/v1`.
 * @param anonymous true where clients make up their keys: those of one address then have one share of what is limited
 */
export function tinkerRoutes(app: FastifyInstance, server: TinkerServer, anonymous: boolean): void {
  app.addContentTypeParser(PROTOBUF, { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.setErrorHandler((error, request, reply) => {
    const fault = error instanceof TinkerProtocolError ? badRequest(error.message) : error;
    return sendError(fault, request, reply, ({ message: detail }) => ({ detail }));
  });
  sessionRoutes(app, server, anonymous);
  futureRoute(app, server);
  modelRoutes(app, server);
  trainingRoutes(app, server);
  savingRoutes(app, server);
  checkpointRoutes(app, server);
  samplingRoutes(app, server);
}

function sessionRoutes(app: FastifyInstance, server: TinkerServer, anonymous: boolean): void {
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.post('/client/config', async () => ({ sample_max_concurrent_requests: MAX_SESSION_SAMPLES }));
  app.post('/client/dynamic_config', async () => ({ refresh_interval_sec: 300 }));
  app.post('/telemetry', async () => ({ status: 'accepted' }));
  app.get('/get_server_capabilities', async () => {
    const model = { model_name: server.name, max_context_length: server.base.maxSequenceLength };
    return { supported_models: [{ ...model, trainable: true, sampleable: true }] };
  });
  const NewSession = Type.Object({ tags: orNull(Type.Array(Type.String())) });
  postRoute(app, '/create_session', NewSession, (_, owner, { ip }) => {
    const share = anonymous ? `address ${networkOf(ip)}` : `key ${owner}`;
    return { session_id: server.createSession(owner, share).id };
  });
  postRoute(app, '/session_heartbeat', Type.Object({ session_id: Id }), ({ session_id }, owner) => {
    server.session(session_id, owner);
    return {};
  });
  app.post<{ Params: { id: string } }>('/sessions/:id/finish', async request => {
    await server.endSession(server.session(request.params.id, ownerOf(request)));
    return {};
  });
}

function futureRoute(app: FastifyInstance, server: TinkerServer): void {
  const parse = bodyParser(Type.Object({ request_id: Id }), () => {});
  app.post('/retrieve_future', async (request, reply) => {
    const { request_id } = parse(request.body);
    const gone = clientGone(request, reply);
    const result = await server.futures.read(request_id, ownerOf(request), server.pollMs, gone.signal);
    if (result instanceof Uint8Array) return reply.type(PROTOBUF).send(result);
    return result ?? reply.status(408).send({ type: 'try_again', request_id, queue_state: 'active' });
  });
}

function modelRoutes(app: FastifyInstance, server: TinkerServer): void {
  const NewModel = Type.Object({
    session_id: Id,
    model_seq_id: SequenceId,
    base_model: Id,
    lora_config: LoraSettings,
    optimizer_config: orNull(Type.Object({ type: Type.String() })),
  });
  postRoute(app, '/create_model', NewModel, (body, owner) => {
    const session = server.session(body.session_id, owner);
    server.checkBase(body.base_model);
    const { type = 'adamw' } = body.optimizer_config ?? {};
    if (type !== 'adamw') {
      const fault = `optimizer_config.type ${JSON.stringify(type)} is not supported`;
      throw badRequest(`${fault}; use adamw`, 'optimizer_config');
    }
    const model = { lora: server.loraOf(body.lora_config), seed: body.lora_config.seed };
    return server.openModel(session, body.model_seq_id, hashOf(body), model, {});
  });
  // SDK 0.38 creates the model with it, and SDK 0.25 loads into one that exists.
  const made = { session_id: MaybeId, model_seq_id: MaybeSequenceId, base_model: MaybeId };
  const there = { model_id: MaybeId, seq_id: MaybeSequenceId };
  const LoadWeights = Type.Object({ path: Id, optimizer: MaybeFlag, ...made, ...there });
  postRoute(app, '/load_weights', LoadWeights, async (body, owner) => {
    const { path, optimizer, model_id, seq_id, session_id, model_seq_id } = body;
    const { folder, base_model, lora } = await server.checkpoints.find(path, owner);
    server.checkBase(body.base_model ?? base_model);
    if (typeof model_id === 'string' && typeof seq_id === 'number') {
      const kind = { content: hashOf(body), ordered: true };
      return submit(server, owner, { model_id, seq_id }, kind, ({ model }) => async () => {
        await model.load(folder, optimizer === true);
        return { path, model_id };
      });
    }
    if (typeof session_id !== 'string' || typeof model_seq_id !== 'number') {
      const fields = 'session_id and model_seq_id, or model_id and seq_id';
      throw badRequest(`load_weights takes ${fields}`, 'session_id');
    }
    const session = server.session(session_id, owner);
    return server.openModel(session, model_seq_id, hashOf(body), { lora, folder, optimizer }, { path });
  });
  postRoute(app, '/get_info', ModelRequest, ({ model_id }, owner) => {
    const { model } = server.model(model_id, owner);
    const { name: model_name, tokenizerFolder: tokenizer_id } = server;
    const model_data = { arch: server.base.config.architecture, model_name, tokenizer_id };
    return { model_id, model_data, is_lora: true, lora_rank: model.lora.rank };
  });
  postRoute(app, '/unload_model', ModelRequest, ({ model_id }, owner) => {
    const { session, model } = server.model(model_id, owner);
    const submission = { id: `${session.id}:${model.key}:unload`, content: '', conflict: '' };
    const unload = () => server.unloadModel(session, model_id).then(() => ({ model_id }));
    return { request_id: server.futures.submit(session, submission, unload), model_id };
  });
}

function trainingRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.post('/forward_backward', { bodyLimit: TRAINING_BODY_BYTES }, async request => {
    const bytes = await bodyBytes(request);
    const decoded = decodeForwardBackwardRequest(bytes);
    const { modelId: model_id, seqId: seq_id, forwardOnly } = decoded;
    const kind = { content: contentOf(decoded), ordered: false, bytes: bytes.length, learns: !forwardOnly };
    return submit(server, ownerOf(request), { model_id, seq_id }, kind, ({ model }) => {
      const { vocabularySize, maxSequenceLength } = server.base;
      const loss = readLoss(decoded, { vocabularySize, maxLength: maxSequenceLength - 1 });
      return async () =>
        encodeForwardBackwardOutput(await model.forwardBackward(loss, forwardOnly, server.losses));
    });
  });
  const OptimStep = Type.Object({
    adam_params: orNull(
      Type.Object({
        learning_rate: PositiveOrZero,
        beta1: BelowOne,
        beta2: BelowOne,
        eps: orNull(Type.Number({ exclusiveMinimum: 0 })),
        weight_decay: PositiveOrZero,
        grad_clip_norm: PositiveOrZero,
      }),
    ),
    optimizer_params: Type.Optional(Type.Unknown()),
  });
  orderedRoute(app, server, '/optim_step', OptimStep, async (body, { model, seqId }) => {
    if (body.optimizer_params) {
      throw badRequest('optimizer_params is not supported: send adam_params', 'optimizer_params');
    }
    const adam = body.adam_params ?? {};
    const metrics = await model.step(seqId, {
      learningRate: adam.learning_rate ?? 1e-4,
      beta1: adam.beta1 ?? 0.9,
      beta2: adam.beta2 ?? 0.95,
      epsilon: adam.eps ?? 1e-12,
      weightDecay: adam.weight_decay ?? 0,
      clipNorm: adam.grad_clip_norm ?? 0,
    });
    return { metrics };
  });
}

function savingRoutes(app: FastifyInstance, server: TinkerServer): void {
  const SaveWeights = Type.Object({ ...saving, path: Id });
  const save = async (kind: CheckpointKind, body: Static<typeof SaveWeights>, { session, model }: Found) => {
    const { path: name, ttl_seconds: ttlSeconds, overwrite } = body;
    const { owner, share } = session;
    const checkpoint = { kind, name, owner, share, base_model: server.name, ttlSeconds, overwrite };
    const write = (folder: string) => model.save(folder, kind === 'weights');
    return { path: await server.checkpoints.save(model.id, checkpoint, write) };
  };
  orderedRoute(app, server, '/save_weights', SaveWeights, (body, found) => save('weights', body, found));
  // With a path it saves a named checkpoint, and without one it opens a sampling session of the weights as they are now.
  const kind = orNull(Type.Union([Type.Literal('snapshot'), Type.Literal('inflight')]));
  const place = { path: MaybeId, sampling_session_seq_id: MaybeSequenceId };
  const SaveForSampler = Type.Object({ ...saving, ...place, kind });
  orderedRoute(app, server, '/save_weights_for_sampler', SaveForSampler, async (body, found) => {
    const { path, sampling_session_seq_id: number, kind } = body;
    if (typeof path === 'string') return save('sampler_weights', { ...body, path }, found);
    if (typeof number !== 'number') throw badRequest('send path, or sampling_session_seq_id', 'path');
    const snapshot = () => found.model.snapshot();
    const weights = kind === 'inflight' ? snapshot : await snapshot().then(now => async () => now);
    const { id } = server.addSampler(found.session, number, { content: hashOf(body), path: null, weights });
    return { sampling_session_id: id };
  });
}

function checkpointRoutes(app: FastifyInstance, server: TinkerServer): void {
  const { checkpoints, name: base_model } = server;
  postRoute(app, '/weights_info', Type.Object({ tinker_path: Id }), async ({ tinker_path }, owner) => {
    const { base_model, lora } = await checkpoints.find(tinker_path, owner);
    const has = (part: string) => lora.modules.some(module => module.startsWith(part));
    const trained = { train_unembed: false, train_mlp: has('up') || has('gate'), train_attn: has('q') };
    return { base_model, is_lora: true, lora_rank: lora.rank, ...trained };
  });
  app.get<{ Params: { id: string } }>('/training_runs/:id', async request => {
    const owner = ownerOf(request);
    const { id, created, lora } = server.model(request.params.id, owner).model;
    const facts = { training_run_id: id, base_model, model_owner: owner, last_request_time: created };
    return { ...facts, is_lora: true, lora_rank: lora.rank };
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

/** Adds a route of operations that wait for all smaller numbers of their model. */
function orderedRoute<Body extends TSchema>(
  app: FastifyInstance,
  server: TinkerServer,
  path: string,
  schema: Body,
  work: (body: Static<Body>, found: Found) => Promise<Result>,
): void {
  const parse = bodyParser(schema, () => {});
  postRoute(app, path, Place, (place, owner) =>
    submit(server, owner, place, { content: hashOf(place), ordered: true }, found => {
      const body = parse(place);
      return () => work(body, found);
    }),
  );
}

/**
 * Submits an operation of a model. Where it is refused for good, its number is used up, so that no other waits for it.
 * @param kind `bytes` of the request count while it waits or runs; `learns` where it adds a gradient
 * @param prepare checks the request
 */
function submit(
  server: TinkerServer,
  owner: string,
  { model_id, seq_id: seqId }: Static<typeof Place>,
  { content, ordered, bytes = 0, learns = false }: Kind,
  prepare: (found: Found) => () => Promise<Result>,
): object {
  const { session, model } = server.model(model_id, owner);
  const { operations } = model;
  const submission = {
    id: `${session.id}:${model.key}:${seqId}`,
    content,
    conflict: `seq_id ${seqId} was used for another request`,
  };
  try {
    const work = prepare({ session, model, seqId });
    const request_id = server.futures.submit(session, submission, () => {
      operations.check(seqId);
      const giveBack = session.shared.bytes.take(bytes);
      return operations.run(seqId, ordered, work, learns).finally(giveBack);
    });
    return { request_id, model_id };
  } catch (error) {
    const { status, message } = error as ApiError;
    if (status === 400) operations.refuse(seqId, message, learns);
    throw error;
  }
}

/** The body of a protobuf request, unpacked. @throws ApiError 413 or 415 */
async function bodyBytes({ body, headers }: FastifyRequest): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (!Buffer.isBuffer(body)) throw new ApiError(415, `forward_backward takes ${PROTOBUF} alone`);
  if (encoding === 'identity') return body;
  if (encoding !== 'zstd') throw new ApiError(415, `content-encoding ${encoding} is not supported; use zstd`);
  return decompress(body, { maxOutputLength: TRAINING_BODY_BYTES }).catch(error => {
    if (error.code !== 'ERR_BUFFER_TOO_LARGE') throw badRequest(`the body is not zstd: ${error.message}`);
    const most = `${TRAINING_BODY_BYTES / 2 ** 20} MiB`;
    throw new ApiError(413, `the body has more than ${most} when it is unpacked`);
  });
}

/** Hash of a request's content; its maps have no order. */
function contentOf({ data, lossFn, lossConfig, forwardOnly }: ForwardBackwardRequest): string {
  const sorted = data.map(({ tokens, inputs }) => [tokens, [...inputs].sort()]);
  const content = serialize([lossFn, Object.entries(lossConfig).sort(), forwardOnly, sorted]);
  return createHash('sha256').update(content).digest('base64');
}
