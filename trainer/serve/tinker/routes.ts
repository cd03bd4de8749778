import { createHash, randomUUID } from 'node:crypto';
import { promisify } from 'node:util';
import { serialize } from 'node:v8';
import { zstdDecompress } from 'node:zlib';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
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
import { sendError } from '../openai/routes.ts';
import type { CheckpointKind } from './checkpoints.ts';
import type { Result } from './futures.ts';
import { readLoss } from './losses.ts';
import { sampleTask } from './samplers.ts';
import { BODIES, type Body } from './schemas.ts';
import { MAX_SAMPLES, type RefusedPlace, type TinkerServer, type TinkerSession } from './server.ts';
import type { TrainingModel } from './training-model.ts';

const PROTOBUF = 'application/x-protobuf';
const TRAINING_BODY_BYTES = 64 * 2 ** 20;
/** Most bodies that are unpacked and read at once: each takes memory up to their limit. Keys take turns. */
const MAX_UNPACKING = 2;
const decompress = promisify(zstdDecompress);

interface Caller {
  /** Hash of the request's key. */
  readonly owner: string;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}
/** Replies to requests with a JSON body, by route. */
type Replies = {
  readonly [Route in keyof typeof BODIES]?: (body: Body<Route>, caller: Caller) => object | Promise<object>;
};

type Found = { readonly session: TinkerSession; readonly model: TrainingModel; readonly seqId: number };
/** Operations of a model that wait for all smaller numbers, by route. */
type Operations = {
  readonly [Route in keyof typeof BODIES]?: (body: Body<Route>, found: Found) => Promise<Result>;
};

/** Facts about a submission. */
interface Kind {
  readonly content: string;
  readonly ordered: boolean;
  /** Bytes that count while it waits or runs. */
  readonly bytes?: number;
  /** True where it adds a gradient. */
  readonly learns?: boolean;
}

/** The routes of the Tinker API behind a prefix, which is `/api/v1`. */
export function tinkerRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.addContentTypeParser(PROTOBUF, { parseAs: 'buffer' }, (_, body, done) => done(null, body));
  app.setErrorHandler((error, request, reply) => {
    const fault = error instanceof TinkerProtocolError ? badRequest(error.message) : error;
    return sendError(fault, request, reply, ({ message: detail }) => ({ detail }));
  });
  const replies = repliesOf(server) as {
    readonly [route: string]: (body: unknown, caller: Caller) => object | Promise<object>;
  };
  for (const route of Object.keys(replies) as (keyof typeof BODIES)[]) {
    app.post(`/${route}`, async (request, reply) => {
      const owner = ownerOf(request);
      return numbered(
        server,
        owner,
        () => placeIn(request.body),
        () => replies[route](BODIES[route](request.body), { owner, request, reply }),
      );
    });
  }
  const operations = operationsOf(server) as {
    readonly [route: string]: (body: unknown, found: Found) => Promise<Result>;
  };
  for (const route of Object.keys(operations) as (keyof typeof BODIES)[]) {
    app.post(`/${route}`, async request => {
      const owner = ownerOf(request);
      return numbered(
        server,
        owner,
        () => placeIn(request.body),
        () => {
          const place = BODIES.operation(request.body);
          return submit(server, owner, place, { content: hashOf(place), ordered: true }, found => {
            const body = BODIES[route](place);
            return () => operations[route](body, found);
          });
        },
      );
    });
  }
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
  routesWithoutBody(app, server);
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

const repliesOf = (server: TinkerServer): Replies => ({
  create_session: (_, { owner }) => ({ session_id: server.createSession(owner).id }),
  session_heartbeat: ({ session_id }, { owner }) => {
    server.session(session_id, owner);
    return {};
  },
  retrieve_future: async ({ request_id }, { owner, request, reply }) => {
    const gone = clientGone(request, reply);
    const result = await server.result(request_id, owner, gone.signal);
    if (result instanceof Uint8Array) return reply.type(PROTOBUF).send(result);
    return result ?? reply.status(408).send({ type: 'try_again', request_id, queue_state: 'active' });
  },
  create_model: (body, { owner }) => {
    const session = server.session(body.session_id, owner);
    server.checkBase(body.base_model);
    const { type = 'adamw' } = body.optimizer_config ?? {};
    if (type !== 'adamw') {
      const fault = `optimizer_config.type ${JSON.stringify(type)} is not supported`;
      throw badRequest(`${fault}; use adamw`, 'optimizer_config');
    }
    const model = { lora: server.loraOf(body.lora_config), seed: body.lora_config.seed };
    return server.openModel(session, body.model_seq_id, hashOf(body), model, {});
  },
  load_weights: (body, { owner }) => loadWeights(server, body, owner),
  get_info: ({ model_id }, { owner }) => {
    const { model } = server.model(model_id, owner);
    const { name: model_name, tokenizerFolder: tokenizer_id } = server;
    const model_data = { arch: server.base.config.architecture, model_name, tokenizer_id };
    return { model_id, model_data, is_lora: true, lora_rank: model.lora.rank };
  },
  unload_model: ({ model_id }, { owner }) => {
    const { session, model } = server.model(model_id, owner);
    const submission = { id: `${session.id}:${model.key}:unload`, content: '', conflict: '' };
    const unload = () => server.unloadModel(session, model_id).then(() => ({ model_id }));
    return { request_id: server.submit(session, submission, unload), model_id };
  },
  weights_info: async ({ tinker_path }, { owner }) => {
    const { base_model, lora } = await server.checkpoints.find(tinker_path, owner);
    const has = (part: string) => lora.modules.some(module => module.startsWith(part));
    const trained = { train_unembed: false, train_mlp: has('up') || has('gate'), train_attn: has('q') };
    return { base_model, is_lora: true, lora_rank: lora.rank, ...trained };
  },
  create_sampling_session: async (body, { owner }) => {
    const session = server.session(body.session_id, owner);
    const { model_path: path = null, base_model: base, sampling_session_seq_id: number } = body;
    if (path === null && !base) throw badRequest('send base_model or model_path', 'base_model');
    if (base) server.checkBase(base);
    const checkpoint = path === null ? undefined : await server.checkpoints.find(path, owner);
    const adapter = checkpoint ? server.checkpoints.adapterOf(checkpoint, server.base.config) : null;
    const sampler = { content: hashOf(body), path, checkpoint, weights: async () => adapter };
    return { sampling_session_id: server.addSampler(session, number, sampler).id };
  },
  asample: async (body, { owner }) => {
    const { sampling_session_id: id, seq_id: number } = body;
    if (!id) {
      const fault = 'sampling_session_id is missing: create one with create_sampling_session';
      throw badRequest(fault, 'sampling_session_id');
    }
    const { session, sampler } = server.sampler(id, owner);
    if (sampler.checkpoint) await server.checkpoints.check(sampler.checkpoint);
    const task = sampleTask(body, server.base, server.stopTokenIds);
    const sample = () => {
      const leave = session.samples.take();
      const { signal } = session.ended;
      const weights = sampler.weights();
      const work = weights.then(adapter => server.samplers.sample(session, adapter, task, signal));
      return work.then(encodeSampleResponse).finally(leave);
    };
    // Numbers of samplers that were copied between processes are too large for JSON to keep exact.
    const known = Number.isSafeInteger(number) ? number : randomUUID();
    const conflict = `seq_id ${number} was used for another sample`;
    const submission = { id: `${id}:${known}`, content: hashOf(body), conflict };
    const request_id = server.submit(session, submission, sample);
    const sample_sequence_ids = Array.from({ length: task.samples }, (_, i) => `${id}:${number}:${i}`);
    return { request_id, sample_sequence_ids };
  },
});

/** Loads a checkpoint into a new model, or into one that exists. */
async function loadWeights(server: TinkerServer, body: Body<'load_weights'>, owner: string): Promise<object> {
  const { path, optimizer, model_id, seq_id, session_id, model_seq_id } = body;
  const find = async () => {
    const checkpoint = await server.checkpoints.find(path, owner);
    server.checkBase(body.base_model ?? checkpoint.base_model);
    return checkpoint;
  };
  if (typeof model_id === 'string' && typeof seq_id === 'number') {
    const kind = { content: hashOf(body), ordered: true };
    return submit(server, owner, { model_id, seq_id }, kind, async ({ model }) => {
      const { folder } = await find();
      return async () => {
        await model.load(folder, optimizer === true);
        return { path, model_id };
      };
    });
  }
  if (typeof session_id !== 'string' || typeof model_seq_id !== 'number') {
    const fields = 'session_id and model_seq_id, or model_id and seq_id';
    throw badRequest(`load_weights takes ${fields}`, 'session_id');
  }
  const { folder, lora } = await find();
  const session = server.session(session_id, owner);
  return server.openModel(session, model_seq_id, hashOf(body), { lora, folder, optimizer }, { path });
}

function operationsOf(server: TinkerServer): Operations {
  const save = async (kind: CheckpointKind, body: Body<'save_weights'>, { session, model }: Found) => {
    const { path: name, ttl_seconds: ttlSeconds, overwrite } = body;
    const { owner } = session;
    const checkpoint = { kind, name, owner, base_model: server.name, ttlSeconds, overwrite };
    const write = (folder: string) => model.save(folder, kind === 'weights');
    return { path: await server.checkpoints.save(model.id, checkpoint, write) };
  };
  return {
    optim_step: async (body, { model, seqId }) => {
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
    },
    save_weights: (body, found) => save('weights', body, found),
    save_weights_for_sampler: async (body, found) => {
      const { path, sampling_session_seq_id: number, kind } = body;
      if (typeof path === 'string') return save('sampler_weights', { ...body, path }, found);
      if (typeof number !== 'number') throw badRequest('send path, or sampling_session_seq_id', 'path');
      const snapshot = () => found.model.snapshot();
      const weights = kind === 'inflight' ? snapshot : await snapshot().then(now => async () => now);
      const { id } = server.addSampler(found.session, number, { content: hashOf(body), path: null, weights });
      return { sampling_session_id: id };
    },
  };
}

async function forwardBackward(server: TinkerServer, request: FastifyRequest): Promise<object> {
  const bytes = await bodyBytes(request);
  const owner = ownerOf(request);
  const place = () => {
    const { modelId: model_id, seqId: seq_id, forwardOnly } = placeOf(bytes);
    return { model_id, seq_id, learns: !forwardOnly };
  };
  return numbered(server, owner, place, () => {
    const decoded = decodeForwardBackwardRequest(bytes);
    const { modelId: model_id, seqId: seq_id, forwardOnly } = decoded;
    const kind = { content: contentOf(decoded), ordered: false, bytes: bytes.length, learns: !forwardOnly };
    return submit(server, owner, { model_id, seq_id }, kind, ({ model }) => {
      const { vocabularySize, maxSequenceLength } = server.base;
      const loss = readLoss(decoded, { vocabularySize, maxLength: maxSequenceLength - 1 });
      return async () =>
        encodeForwardBackwardOutput(await model.forwardBackward(loss, forwardOnly, server.losses));
    });
  });
}

/**
 * Replies to a request. Where it is refused for good, the number that it names is used up, so that no other waits for
 * it; what else the request says may have any form.
 */
async function numbered(
  server: TinkerServer,
  owner: string,
  place: () => RefusedPlace,
  reply: () => object | Promise<object>,
): Promise<object> {
  try {
    return await reply();
  } catch (error) {
    const { status, message } = error as ApiError;
    if (status === 400 || status === 404 || error instanceof TinkerProtocolError)
      server.refuse(place(), owner, message);
    throw error;
  }
}

/** The place that a JSON body of any form names. */
function placeIn(body: unknown): RefusedPlace {
  const { model_id, seq_id } = (body ?? {}) as { readonly [field: string]: unknown };
  return { model_id, seq_id, learns: false };
}

/**
 * Submits an operation of a model.
 * @param prepare checks the request
 */
async function submit(
  server: TinkerServer,
  owner: string,
  { model_id, seq_id: seqId }: Body<'operation'>,
  { content, ordered, bytes = 0, learns = false }: Kind,
  prepare: (found: Found) => (() => Promise<Result>) | Promise<() => Promise<Result>>,
): Promise<object> {
  const { session, model } = server.model(model_id, owner);
  const { operations } = model;
  const submission = {
    id: `${session.id}:${model.key}:${seqId}`,
    content,
    conflict: `seq_id ${seqId} was used for another request`,
  };
  const work = await prepare({ session, model, seqId });
  const request_id = server.submit(session, submission, () => {
    operations.check(seqId);
    const giveBack = session.limits.bytes.take(bytes);
    return operations.run(seqId, ordered, work, learns).finally(giveBack);
  });
  return { request_id, model_id };
}

/** The body of a protobuf request, unpacked. @throws ApiError 413 or 415 */
async function bodyBytes({ body, headers, socket }: FastifyRequest): Promise<Buffer> {
  const { 'content-encoding': encoding = 'identity' } = headers;
  if (socket.destroyed) throw badRequest('the client went away');
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

/** Hash of a request's key, which distinguishes owners. */
export function ownerOf({ headers }: Pick<FastifyRequest, 'headers'>): string {
  return createHash('sha256')
    .update(keyOf(headers) ?? '')
    .digest('hex')
    .slice(0, 32);
}

const hashOf = (content: object): string =>
  createHash('sha256').update(JSON.stringify(content)).digest('base64');
