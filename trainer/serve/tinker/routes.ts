import { createHash, randomUUID } from 'node:crypto';
import { serialize } from 'node:v8';
import { createZstdDecompress } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import Type, { type TProperties } from 'typebox';
import { Slots } from '../../../shared/scheduling/slots.ts';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardOutput,
  encodeSampleResponse,
  type ForwardBackwardRequest,
  placeOf,
  TinkerProtocolError,
} from '../../tinker/proto.ts';
import { keyOf } from '../access.ts';
import { ApiError, badRequest, clientGone } from '../openai/errors.ts';
import { apiErrorOf, sendError } from '../openai/routes.ts';
import { bodyParser } from '../openai/schemas.ts';
import type { CheckpointKind } from './checkpoints.ts';
import type { Result } from './futures.ts';
import { readLoss } from './losses.ts';
import { sampleTask } from './samplers.ts';
import {
  type Fields,
  Id,
  LoadFields,
  ModelFields,
  orNull,
  SampleFields,
  SamplerFields,
  SaveFields,
  SequenceId,
  StepFields,
} from './schemas.ts';
import { type FoundModel, MAX_SAMPLES, type TinkerServer } from './server.ts';

const PROTOBUF = 'application/x-protobuf';
const TRAINING_BODY_BYTES = 64 * 2 ** 20;
const CHUNK_BYTES = 2 ** 18;
/** Most bodies that are unpacked and read at once: each takes memory up to their limit. Keys take turns. */
const MAX_UNPACKING = 2;
/** A request with one of these statuses is refused for good: its client does not send it again. */
const REFUSED: ReadonlySet<number> = new Set([400, 404, 413, 415]);
const Numbered = { model_id: Id, seq_id: SequenceId };

interface Caller {
  /** Hash of the request's key. */
  readonly owner: string;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}
/** Adds a route with a JSON body. Unknown fields are ignored, and a faulty one gets 400 with its name. */
type Post = <P extends TProperties>(
  route: string,
  fields: P,
  reply: (body: Fields<P>, caller: Caller) => object | Promise<object>,
) => void;

/** The routes of the Tinker API behind a prefix, which is `/api/v1`. */
export function tinkerRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.addContentTypeParser(PROTOBUF, { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.setErrorHandler((error, request, reply) => {
    const fault = error instanceof TinkerProtocolError ? badRequest(error.message) : apiErrorOf(error);
    // Its number is used up, so that no other request waits for it.
    if (REFUSED.has(fault.status)) server.refuse(placeIn(request), ownerOf(request), fault.message);
    return sendError(fault.status < 500 ? fault : error, request, reply, ({ message }) => ({
      detail: message,
    }));
  });
  const post: Post = (route, fields, reply) => {
    const parse = bodyParser(Type.Object(fields), () => {});
    app.post(`/${route}`, async (request, answer) =>
      reply(parse(request.body) as Fields<typeof fields>, {
        owner: ownerOf(request),
        request,
        reply: answer,
      }),
    );
  };
  routesWithoutBody(app, server);
  sessionRoutes(post, server);
  modelRoutes(post, server);
  operationRoutes(post, server);
  samplingRoutes(post, server);
  const unpacking = new Slots({ most: MAX_UNPACKING });
  app.post('/forward_backward', { bodyLimit: TRAINING_BODY_BYTES }, async request => {
    const slot = unpacking.group(ownerOf(request));
    await slot.take();
    try {
      return await forwardBackward(server, request);
    } finally {
      slot.release();
    }
  });
}

function routesWithoutBody(app: FastifyInstance, server: TinkerServer): void {
  const { checkpoints, name: base_model } = server;
  app.get('/healthz', async () => ({ status: 'ok' }));
  app.post('/client/config', async () => ({ sample_max_concurrent_requests: MAX_SAMPLES }));
  app.post('/client/dynamic_config', async () => ({ refresh_interval_sec: 300 }));
  app.post('/telemetry', async () => ({ status: 'accepted' }));
  app.get('/get_server_capabilities', async () => {
    const model = { model_name: base_model, max_context_length: server.base.maxSequenceLength };
    return { supported_models: [{ ...model, trainable: true, sampleable: true }] };
  });
  type Named = { Params: { id: string; '*': string } };
  app.post<Named>('/sessions/:id/finish', async request => {
    await server.endSession(server.session(request.params.id, ownerOf(request)));
    return {};
  });
  app.get<Named>('/samplers/:id', async request => {
    const { id: sampler_id, path } = server.sampler(request.params.id, ownerOf(request)).sampler;
    return { sampler_id, base_model, ...(path ? { model_path: path } : {}) };
  });
  app.get<Named>('/training_runs/:id', async request => {
    const owner = ownerOf(request);
    const { id, created, lora } = server.model(request.params.id, owner).model;
    const facts = { training_run_id: id, base_model, model_owner: owner, last_request_time: created };
    return { ...facts, is_lora: true, lora_rank: lora.rank };
  });
  app.get<Named>('/training_runs/:id/checkpoints', async request => ({
    checkpoints: await checkpoints.list(request.params.id, ownerOf(request)),
  }));
  app.delete<Named>('/training_runs/:id/checkpoints/*', async (request, reply) => {
    await checkpoints.delete(`tinker://${request.params.id}/${request.params['*']}`, ownerOf(request));
    return reply.status(204).send();
  });
}

function sessionRoutes(post: Post, server: TinkerServer): void {
  post('create_session', { tags: orNull(Type.Array(Type.String())) }, (_, { owner }) => ({
    session_id: server.createSession(owner).id,
  }));
  post('session_heartbeat', { session_id: Id }, ({ session_id }, { owner }) => {
    server.session(session_id, owner);
    return {};
  });
  post('retrieve_future', { request_id: Id }, async ({ request_id }, { owner, request, reply }) => {
    const result = await server.result(request_id, owner, clientGone(request, reply).signal);
    if (result instanceof Uint8Array) return reply.type(PROTOBUF).send(result);
    return result ?? reply.status(408).send({ type: 'try_again', request_id, queue_state: 'active' });
  });
}

function modelRoutes(post: Post, server: TinkerServer): void {
  const { checkpoints } = server;
  post('create_model', ModelFields, (body, { owner }) => {
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
  post('load_weights', LoadFields, async (body, { owner }) => {
    const { path, optimizer, model_id, seq_id, session_id, model_seq_id } = body;
    const find = async () => {
      const checkpoint = await checkpoints.find(path, owner);
      server.checkBase(body.base_model ?? checkpoint.base_model);
      return checkpoint;
    };
    if (typeof model_id === 'string' && typeof seq_id === 'number') {
      const operation = { model_id, seq_id, content: hashOf(body) };
      return submit(server, owner, operation, async ({ model }) => {
        const { folder } = await find();
        return () => model.load(folder, optimizer === true).then(() => ({ path, model_id }));
      });
    }
    if (typeof session_id !== 'string' || typeof model_seq_id !== 'number') {
      const fields = 'session_id and model_seq_id, or model_id and seq_id';
      throw badRequest(`load_weights takes ${fields}`, 'session_id');
    }
    const { folder, lora } = await find();
    const session = server.session(session_id, owner);
    return server.openModel(session, model_seq_id, hashOf(body), { lora, folder, optimizer }, { path });
  });
  post('get_info', { model_id: Id }, ({ model_id }, { owner }) => {
    const { lora } = server.model(model_id, owner).model;
    const { name: model_name, tokenizerFolder: tokenizer_id } = server;
    const model_data = { arch: server.base.config.architecture, model_name, tokenizer_id };
    return { model_id, model_data, is_lora: true, lora_rank: lora.rank };
  });
  post('unload_model', { model_id: Id }, ({ model_id }, { owner }) => {
    const { session, model } = server.model(model_id, owner);
    const submission = { id: `${session.id}:${model.key}:unload`, content: '', conflict: '' };
    const unload = () => server.unloadModel(session, model_id).then(() => ({ model_id }));
    return { request_id: server.submit(session, submission, unload), model_id };
  });
  post('weights_info', { tinker_path: Id }, async ({ tinker_path }, { owner }) => {
    const { base_model, lora } = await checkpoints.find(tinker_path, owner);
    const has = (part: string) => lora.modules.some(module => module.startsWith(part));
    const trained = { train_unembed: false, train_mlp: has('up') || has('gate'), train_attn: has('q') };
    return { base_model, is_lora: true, lora_rank: lora.rank, ...trained };
  });
}

/** Operations of a model that wait for all smaller numbers. */
function operationRoutes(post: Post, server: TinkerServer): void {
  const operation = <P extends TProperties>(
    route: string,
    fields: P,
    work: (body: Fields<P & typeof Numbered>, found: FoundModel) => Promise<Result>,
  ) =>
    post(route, { ...Numbered, ...fields }, (body, { owner }) => {
      const place = { ...(body as Fields<typeof Numbered>), content: hashOf(body) };
      return submit(server, owner, place, found => () => work(body as Fields<P & typeof Numbered>, found));
    });
  const save = async (
    kind: CheckpointKind,
    { path: name, ttl_seconds: ttlSeconds, overwrite }: Fields<typeof SaveFields>,
    { session: { owner }, model }: FoundModel,
  ) => {
    const checkpoint = { kind, name, owner, base_model: server.name, ttlSeconds, overwrite };
    const write = (folder: string) => model.save(folder, kind === 'weights');
    return { path: await server.checkpoints.save(model.id, checkpoint, write) };
  };
  operation('save_weights', SaveFields, (body, found) => save('weights', body, found));
  operation('save_weights_for_sampler', SamplerFields, async (body, found) => {
    const { path, sampling_session_seq_id: number, kind } = body;
    if (typeof path === 'string') return save('sampler_weights', { ...body, path }, found);
    if (typeof number !== 'number') throw badRequest('send path, or sampling_session_seq_id', 'path');
    const snapshot = () => found.model.snapshot();
    const weights = kind === 'inflight' ? snapshot : await snapshot().then(now => async () => now);
    const { id } = server.addSampler(found.session, number, { content: hashOf(body), path: null, weights });
    return { sampling_session_id: id };
  });
  operation('optim_step', StepFields, async ({ adam_params: adam, optimizer_params, seq_id }, { model }) => {
    if (optimizer_params) {
      throw badRequest('optimizer_params is not supported: send adam_params', 'optimizer_params');
    }
    const metrics = await model.step(seq_id, {
      learningRate: adam?.learning_rate ?? 1e-4,
      beta1: adam?.beta1 ?? 0.9,
      beta2: adam?.beta2 ?? 0.95,
      epsilon: adam?.eps ?? 1e-12,
      weightDecay: adam?.weight_decay ?? 0,
      clipNorm: adam?.grad_clip_norm ?? 0,
    });
    return { metrics };
  });
}

function samplingRoutes(post: Post, server: TinkerServer): void {
  const { checkpoints } = server;
  const session = { session_id: Id, sampling_session_seq_id: SequenceId };
  const source = { base_model: orNull(Id), model_path: orNull(Id) };
  post('create_sampling_session', { ...session, ...source }, async (body, { owner }) => {
    const session = server.session(body.session_id, owner);
    const { model_path: path = null, base_model: base, sampling_session_seq_id: number } = body;
    if (path === null && !base) throw badRequest('send base_model or model_path', 'base_model');
    if (base) server.checkBase(base);
    const checkpoint = path === null ? undefined : await checkpoints.find(path, owner);
    const adapter = checkpoint ? checkpoints.adapterOf(checkpoint, server.base.config) : null;
    const sampler = { content: hashOf(body), path, checkpoint, weights: async () => adapter };
    return { sampling_session_id: server.addSampler(session, number, sampler).id };
  });
  post('asample', SampleFields, async (body, { owner }) => {
    const { sampling_session_id: id, seq_id: number } = body;
    if (!id) {
      const fault = 'sampling_session_id is missing: create one with create_sampling_session';
      throw badRequest(fault, 'sampling_session_id');
    }
    const { session, sampler } = server.sampler(id, owner);
    if (sampler.checkpoint) await checkpoints.check(sampler.checkpoint);
    const task = sampleTask(body, server.base, server.stopTokenIds);
    const sample = () => {
      const leave = session.samples.take();
      const { signal } = session.ended;
      const work = sampler.weights().then(adapter => server.samplers.sample(session, adapter, task, signal));
      return work.then(encodeSampleResponse).finally(leave);
    };
    // Numbers of samplers that were copied between processes are too large for JSON to keep exact.
    const known = Number.isSafeInteger(number) ? number : randomUUID();
    const conflict = `seq_id ${number} was used for another sample`;
    const submission = { id: `${id}:${known}`, content: hashOf(body), conflict };
    const request_id = server.submit(session, submission, sample);
    const sample_sequence_ids = Array.from({ length: task.samples }, (_, i) => `${id}:${number}:${i}`);
    return { request_id, sample_sequence_ids };
  });
}

async function forwardBackward(server: TinkerServer, request: FastifyRequest): Promise<object> {
  const bytes = await unpacked(request);
  const decoded = decodeForwardBackwardRequest(bytes);
  const { modelId: model_id, seqId: seq_id, forwardOnly } = decoded;
  const place = { model_id, seq_id, content: contentOf(decoded) };
  const kind = { ...place, isOrdered: false, bytes: bytes.length, learns: !forwardOnly };
  return submit(server, ownerOf(request), kind, ({ model }) => {
    const { vocabularySize, maxSequenceLength } = server.base;
    const loss = readLoss(decoded, { vocabularySize, maxLength: maxSequenceLength - 1 });
    return async () =>
      encodeForwardBackwardOutput(await model.forwardBackward(loss, forwardOnly, server.losses));
  });
}

/** An operation of a model. */
interface Operation extends Fields<typeof Numbered> {
  /** Hash of its content. */
  readonly content: string;
  /** False: it runs as it arrives, before smaller numbers. */
  readonly isOrdered?: boolean;
  /** Bytes that count while it waits or runs. */
  readonly bytes?: number;
  /** True where it adds a gradient. */
  readonly learns?: boolean;
}

/**
 * Submits an operation of a model, once.
 * @param prepare checks the request
 */
async function submit(
  server: TinkerServer,
  owner: string,
  { model_id, seq_id, content, isOrdered = true, bytes = 0, learns = false }: Operation,
  prepare: (found: FoundModel) => (() => Promise<Result>) | Promise<() => Promise<Result>>,
): Promise<object> {
  const { session, model } = server.model(model_id, owner);
  const { key, operations } = model;
  const conflict = `seq_id ${seq_id} was used for another request`;
  const submission = { id: `${session.id}:${key}:${seq_id}`, content, conflict };
  const work = await prepare({ session, model });
  const request_id = server.submit(session, submission, () => {
    operations.check(seq_id);
    const giveBack = session.limits.bytes.take(bytes);
    return operations.run(seq_id, isOrdered, work, learns).finally(giveBack);
  });
  return { request_id, model_id };
}

/**
 * The body of a protobuf request, unpacked. It becomes the body of the request, as far as it can be.
 * @throws ApiError 400, 413 or 415
 */
async function unpacked(request: FastifyRequest): Promise<Buffer> {
  const { body, headers, socket } = request;
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (socket.destroyed) throw badRequest('the client went away');
  if (!Buffer.isBuffer(body)) throw new ApiError(415, `forward_backward takes ${PROTOBUF} alone`);
  if (encoding === 'identity') return body;
  if (encoding !== 'zstd') throw new ApiError(415, `content-encoding ${encoding} is not supported; use zstd`);
  const parts: Buffer[] = [];
  let size = 0;
  const stream = createZstdDecompress({ chunkSize: CHUNK_BYTES });
  stream.end(body);
  try {
    for await (const part of stream) {
      parts.push(part);
      size += part.length;
      if (size <= TRAINING_BODY_BYTES) continue;
      const most = `${TRAINING_BODY_BYTES / 2 ** 20} MiB`;
      throw new ApiError(413, `the body has more than ${most} when it is unpacked`);
    }
  } catch (error) {
    if (error instanceof ApiError) throw error;
    throw badRequest(`the body is not zstd: ${(error as Error).message}`);
  } finally {
    request.body = Buffer.concat(parts);
  }
  return request.body as Buffer;
}

/** The model and number that a refused request names, as far as they can be read; it may have any form. */
function placeIn({ body, routeOptions }: FastifyRequest) {
  if (Buffer.isBuffer(body)) {
    const { modelId: model_id, seqId: seq_id, forwardOnly } = placeOf(body);
    return { model_id, seq_id, learns: !forwardOnly };
  }
  const { model_id, seq_id } = (body ?? {}) as { readonly [field: string]: unknown };
  return { model_id, seq_id, learns: routeOptions.url?.endsWith('/forward_backward') === true };
}

/** Hash of a request's content; its maps have no order. */
function contentOf({ data, lossFn, lossConfig, forwardOnly }: ForwardBackwardRequest): string {
  const sorted = data.map(({ tokens, inputs }) => [tokens, [...inputs].sort()]);
  const content = serialize([lossFn, Object.entries(lossConfig).sort(), forwardOnly, sorted]);
  return createHash('sha256').update(content).digest('base64');
}

/** Hash of a request's key, which distinguishes owners. */
export function ownerOf({ headers }: Pick<FastifyRequest, 'headers'>): string {
  return createHash('sha256')
    .update(keyOf(headers) ?? '')
    .digest('hex')
    .slice(0, 32);
}

const hashOf = (content: object): string =>
  createHash('sha256').update(JSON.stringify(content)).digest('base64');
