import { hash, randomUUID } from 'node:crypto';
import { serialize } from 'node:v8';
import type { FastifyInstance, FastifyReply, FastifyRequest, HTTPMethods } from 'fastify';
import Type, { type TProperties } from 'typebox';
import type { LossBatch, LossProgram } from '../../policy/learning/loss-program.ts';
import {
  decodeForwardBackwardRequest,
  encodeForwardBackwardOutput,
  encodeSampleResponse,
  TinkerProtocolError,
} from '../../tinker/proto.ts';
import { keyOf } from '../access.ts';
import { badRequest, clientGone } from '../openai/errors.ts';
import { apiErrorOf, sendError } from '../openai/routes.ts';
import { bodyParser } from '../openai/schemas.ts';
import * as bodies from './bodies.ts';
import { type Fields, Id } from './bodies.ts';
import type { CheckpointKind } from './checkpoints.ts';
import type { Result } from './futures.ts';
import { readLoss } from './losses.ts';
import { sampleTask } from './samplers.ts';
import { type FoundModel, MAX_SAMPLES, type TinkerServer } from './server.ts';
import type { TrainingModel } from './training-model.ts';

/** Advice to the client of a refused operation in which no number of an open model was found. */
const UNREAD =
  'no seq_id of an open model was read: if it had one, send that number again, as later ones wait for it';
/** A request with one of these statuses is refused for good: its client does not send it again. */
const REFUSED: ReadonlySet<number> = new Set([400, 404, 413, 415]);

/** A request with what its route needs. */
interface Call {
  readonly server: TinkerServer;
  /** Hash of the request's key. */
  readonly owner: string;
  /** The id in the address. */
  readonly id: string;
  readonly request: FastifyRequest;
  readonly reply: FastifyReply;
}
type Handler = (call: Call) => object | Promise<object>;

/** A route with a JSON body. Unknown fields are ignored, and a faulty one gets 400 with its name. */
function json<P extends TProperties>(
  fields: P,
  handle: (body: Fields<P>, call: Call) => object | Promise<object>,
): Handler {
  const parse = bodyParser(Type.Object(fields), () => {});
  return call => handle(parse(call.request.body) as Fields<P>, call);
}

/**
 * An operation of a model that waits for all smaller numbers.
 * @param read what it needs of its body, which may be large: nothing else of the request stays in memory while it waits
 */
const ordered = <P extends TProperties, T extends object>(
  fields: P,
  read: (body: Fields<P & typeof bodies.Numbered>) => T,
  work: (kept: T & Operation, found: FoundModel, server: TinkerServer) => Promise<Result>,
): Handler =>
  json({ ...bodies.Numbered, ...fields }, (body, call) => {
    const { model_id, seq_id } = body as Fields<typeof bodies.Numbered>;
    const operation = { model_id, seq_id, content: hashOf(body) };
    const kept = { ...read(body as Fields<P & typeof bodies.Numbered>), ...operation };
    return submit(call, operation, later(work, kept, call.server));
  });

/** Work of a model. Its closure holds its own arguments alone: those of a handler would hold the whole request. */
const later =
  <T>(
    work: (kept: T, found: FoundModel, server: TinkerServer) => Promise<Result>,
    kept: T,
    server: TinkerServer,
  ) =>
  (found: FoundModel) =>
  () =>
    work(kept, found, server);

/** The routes of the Tinker API by method and address behind `/api/v1/`. */
const ROUTES: Readonly<Record<string, Handler>> = {
  'GET healthz': () => ({ status: 'ok' }),
  'POST client/config': () => ({ sample_max_concurrent_requests: MAX_SAMPLES }),
  'POST client/dynamic_config': () => ({ refresh_interval_sec: 300 }),
  'POST telemetry': () => ({ status: 'accepted' }),
  'GET get_server_capabilities': ({ server }) => {
    const model = { model_name: server.name, max_context_length: server.base.maxSequenceLength };
    return { supported_models: [{ ...model, trainable: true, sampleable: true }] };
  },

  'POST create_session': json(bodies.SessionFields, (_, { server, owner }) => ({
    session_id: server.createSession(owner).id,
  })),
  'POST session_heartbeat': json({ session_id: Id }, ({ session_id }, { server, owner }) => {
    server.session(session_id, owner);
    return {};
  }),
  'POST sessions/:id/finish': async ({ server, owner, id }) => {
    await server.endSession(server.session(id, owner));
    return {};
  },
  'POST retrieve_future': json({ request_id: Id }, async ({ request_id }, call) => {
    const { server, owner, request, reply } = call;
    const result = await server.result(request_id, owner, clientGone(request, reply).signal);
    if (result instanceof Uint8Array) return reply.type(bodies.PROTOBUF).send(result);
    return result ?? reply.status(408).send({ type: 'try_again', request_id, queue_state: 'active' });
  }),

  'POST create_model': json(bodies.ModelFields, (body, { server, owner }) => {
    const { lora_config: lora, optimizer_config } = body;
    const session = server.session(body.session_id, owner);
    server.checkBase(body.base_model);
    const { type = 'adamw' } = optimizer_config ?? {};
    if (type !== 'adamw') {
      const fault = `optimizer_config.type ${JSON.stringify(type)} is not supported`;
      throw badRequest(`${fault}; use adamw`, 'optimizer_config');
    }
    const model = { lora: server.loraOf(lora), seed: lora.seed };
    return server.openModel(session, body.model_seq_id, hashOf(body), model, {});
  }),
  'POST load_weights': json(bodies.LoadFields, async (body, call) => {
    const { path, optimizer, model_id, seq_id, session_id, model_seq_id } = body;
    const { server, owner } = call;
    const content = hashOf(body);
    const find = async () => {
      const checkpoint = await server.checkpoints.find(path, owner);
      server.checkBase(body.base_model ?? checkpoint.base_model);
      return checkpoint;
    };
    if (typeof model_id === 'string' && typeof seq_id === 'number')
      return submit(call, { model_id, seq_id, content }, async ({ model }) => {
        const { folder } = await find();
        return loading(model, folder, optimizer === true, { path, model_id });
      });
    if (typeof session_id !== 'string' || typeof model_seq_id !== 'number') {
      const fields = 'session_id and model_seq_id, or model_id and seq_id';
      throw badRequest(`load_weights takes ${fields}`, 'session_id');
    }
    const { folder, lora } = await find();
    const session = server.session(session_id, owner);
    return server.openModel(session, model_seq_id, content, { lora, folder, optimizer }, { path });
  }),
  'POST get_info': json({ model_id: Id }, ({ model_id }, { server, owner }) => {
    const { lora } = server.model(model_id, owner).model;
    const { name: model_name, tokenizerFolder: tokenizer_id } = server;
    const model_data = { arch: server.base.config.architecture, model_name, tokenizer_id };
    return { model_id, model_data, is_lora: true, lora_rank: lora.rank };
  }),
  'POST unload_model': json({ model_id: Id }, ({ model_id }, { server, owner }) => {
    const { session, model } = server.model(model_id, owner);
    const submission = { id: `${model.key}:unload`, content: '', conflict: '' };
    const unload = () => server.unloadModel(session, model_id).then(() => ({ model_id }));
    return { request_id: session.futures.submit(submission, unload), model_id };
  }),

  'POST forward_backward': call =>
    call.server.unpacking.group(call.owner).run(async () => {
      const { server, request } = call;
      if (!Buffer.isBuffer(request.body)) throw bodies.protobufAlone();
      const bytes = await bodies.unpacked(request, request.body, 'zstd');
      const decoded = decodeForwardBackwardRequest(bytes);
      const { modelId: model_id, seqId: seq_id, data, lossFn, lossConfig, forwardOnly } = decoded;
      // Maps have no order.
      const sorted = data.map(({ tokens, inputs }) => [tokens, [...inputs].sort()]);
      const content = serialize([lossFn, Object.entries(lossConfig).sort(), forwardOnly, sorted]);
      const kind = { isOrdered: false, bytes: bytes.length, learns: !forwardOnly };
      return submit(call, { model_id, seq_id, content: hashOf(content), ...kind }, ({ model }) => {
        const { vocabularySize, maxSequenceLength } = server.base;
        const loss = readLoss(decoded, { vocabularySize, maxLength: maxSequenceLength - 1 });
        return adding(model, loss, forwardOnly, server.losses);
      });
    }),
  'POST optim_step': ordered(
    bodies.StepFields,
    ({ adam_params: adam, optimizer_params }) => ({
      isOther: Boolean(optimizer_params),
      optimizer: {
        learningRate: adam?.learning_rate ?? 1e-4,
        beta1: adam?.beta1 ?? 0.9,
        beta2: adam?.beta2 ?? 0.95,
        epsilon: adam?.eps ?? 1e-12,
        weightDecay: adam?.weight_decay ?? 0,
        clipNorm: adam?.grad_clip_norm ?? 0,
      },
    }),
    async ({ isOther, optimizer, seq_id }, { model }) => {
      if (isOther)
        throw badRequest('optimizer_params is not supported: send adam_params', 'optimizer_params');
      return { metrics: await model.step(seq_id, optimizer) };
    },
  ),
  'POST save_weights': ordered(
    bodies.SaveFields,
    ({ path, ttl_seconds, overwrite }) => ({ path, ttl_seconds, overwrite }),
    (kept, found, server) => save(server, 'weights', kept, found),
  ),
  'POST save_weights_for_sampler': ordered(
    bodies.SamplerFields,
    body => {
      const { path, ttl_seconds, overwrite, sampling_session_seq_id: number, kind } = body;
      return { path, ttl_seconds, overwrite, number, kind };
    },
    async ({ path, number, kind, content, ...more }, found, server) => {
      if (typeof path === 'string') return save(server, 'sampler_weights', { ...more, path }, found);
      if (typeof number !== 'number') throw badRequest('send path, or sampling_session_seq_id', 'path');
      const snapshot = () => found.model.snapshot();
      const weights = kind === 'inflight' ? snapshot : await snapshot().then(now => async () => now);
      const sampler = { content, path: null, weights };
      return { sampling_session_id: server.addSampler(found.session, number, sampler).id };
    },
  ),

  'POST create_sampling_session': json(bodies.SamplingSessionFields, async (body, { server, owner }) => {
    const { checkpoints } = server;
    const session = server.session(body.session_id, owner);
    const { model_path: path = null, base_model: base, sampling_session_seq_id: number } = body;
    if (path === null && !base) throw badRequest('send base_model or model_path', 'base_model');
    if (base) server.checkBase(base);
    const checkpoint = path === null ? undefined : await checkpoints.find(path, owner);
    const adapter = checkpoint ? checkpoints.adapterOf(checkpoint, server.base.config) : null;
    const content = hashOf(body);
    const sampler = { content, path, checkpoint, weights: async () => adapter };
    return { sampling_session_id: server.addSampler(session, number, sampler).id };
  }),
  'GET samplers/:id': ({ server, owner, id }) => {
    const { id: sampler_id, path } = server.sampler(id, owner).sampler;
    return { sampler_id, base_model: server.name, ...(path ? { model_path: path } : {}) };
  },
  'POST asample': json(bodies.SampleFields, async (body, { server, owner }) => {
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
      const work = sampler.weights().then(adapter => server.samplers.sample(session, adapter, task, signal));
      return work.then(encodeSampleResponse).finally(leave);
    };
    // Numbers of samplers that were copied between processes are too large for JSON to keep exact.
    const known = Number.isSafeInteger(number) ? number : randomUUID();
    const conflict = `seq_id ${number} was used for another sample`;
    const submission = { id: `${id}:${known}`, content: hashOf(body), conflict };
    const request_id = session.futures.submit(submission, sample);
    const sample_sequence_ids = Array.from({ length: task.samples }, (_, i) => `${id}:${number}:${i}`);
    return { request_id, sample_sequence_ids };
  }),

  'POST weights_info': json({ tinker_path: Id }, async ({ tinker_path }, { server, owner }) => {
    const { base_model, lora } = await server.checkpoints.find(tinker_path, owner);
    const has = (part: string) => lora.modules.some(module => module.startsWith(part));
    const trained = { train_unembed: false, train_mlp: has('up') || has('gate'), train_attn: has('q') };
    return { base_model, is_lora: true, lora_rank: lora.rank, ...trained };
  }),
  'GET training_runs/:id': ({ server, owner, id }) => {
    const { created, lora } = server.model(id, owner).model;
    const facts = { training_run_id: id, base_model: server.name, model_owner: owner };
    return { ...facts, last_request_time: created, is_lora: true, lora_rank: lora.rank };
  },
  'GET training_runs/:id/checkpoints': async ({ server, owner, id }) => ({
    checkpoints: await server.checkpoints.list(id, owner),
  }),
  'DELETE training_runs/:id/checkpoints/*': async ({ server, owner, id, request, reply }) => {
    const { '*': name } = request.params as { readonly '*': string };
    await server.checkpoints.delete(`tinker://${id}/${name}`, owner);
    return reply.status(204).send();
  },
};

/** The routes of the Tinker API behind a prefix, which is `/api/v1`. */
export function tinkerRoutes(app: FastifyInstance, server: TinkerServer): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser(bodies.PROTOBUF, bodies.rawBody);
  const parse = app.getDefaultJsonParser('error', 'error');
  app.addContentTypeParser('application/json', (request, payload, done) => {
    bodies.jsonText(request, payload).then(text => parse(request, text, done), done);
  });
  app.setErrorHandler((error, request, reply) => {
    const fault = error instanceof TinkerProtocolError ? badRequest(error.message) : apiErrorOf(error);
    // Its number is used up, so that no other request waits for it.
    const isCounted =
      REFUSED.has(fault.status) && server.refuse(bodies.placeIn(request), ownerOf(request), fault.message);
    const isUnread = !isCounted && bodies.mayHaveNumber(request, fault.status);
    const detail = isUnread ? `${fault.message}; ${UNREAD}` : fault.message;
    return sendError(fault.status < 500 ? fault : error, request, reply, () => ({ detail }));
  });
  for (const [route, handle] of Object.entries(ROUTES)) {
    const [method, address] = route.split(' ') as [HTTPMethods, string];
    const handler = async (request: FastifyRequest, reply: FastifyReply) => {
      const { id } = request.params as Pick<Call, 'id'>;
      return handle({ server, owner: ownerOf(request), id, request, reply });
    };
    const limit = address === 'forward_backward' ? { bodyLimit: bodies.TRAINING_BODY_BYTES } : {};
    app.route({ method, url: `/${address}`, handler, ...limit });
  }
}

const loading = (model: TrainingModel, folder: string, optimizer: boolean, result: object) => () =>
  model.load(folder, optimizer).then(() => result);

const adding =
  (model: TrainingModel, loss: LossBatch, forwardOnly: boolean, losses: LossProgram) => async () =>
    encodeForwardBackwardOutput(await model.forwardBackward(loss, forwardOnly, losses));

async function save(
  { checkpoints, name: base_model }: TinkerServer,
  kind: CheckpointKind,
  { path: name, ttl_seconds: ttlSeconds, overwrite }: Fields<typeof bodies.SaveFields>,
  { session: { owner }, model }: FoundModel,
): Promise<Result> {
  const checkpoint = { kind, name, owner, base_model, ttlSeconds, overwrite };
  const write = (folder: string) => model.save(folder, kind === 'weights');
  return { path: await checkpoints.save(model.id, checkpoint, write) };
}

/** An operation of a model. */
interface Operation extends Fields<typeof bodies.Numbered> {
  /** Hash of its content. */
  readonly content: string;
  /** False: it runs as it arrives, before smaller numbers. */
  readonly isOrdered?: boolean;
  /** Bytes that count while it waits or runs. */
  readonly bytes?: number;
  /** True where it adds a gradient. */
  readonly learns?: boolean;
}

/** Submits an operation of a model, once. @param prepare checks the request */
async function submit(
  { server, owner }: Call,
  { model_id, seq_id, content, isOrdered = true, bytes = 0, learns = false }: Operation,
  prepare: (found: FoundModel) => (() => Promise<Result>) | Promise<() => Promise<Result>>,
): Promise<object> {
  const found = server.model(model_id, owner);
  const { limits, futures } = found.session;
  const { key, operations } = found.model;
  const work = await prepare(found);
  const conflict = `seq_id ${seq_id} was used for another request`;
  const submission = { id: `${key}:${seq_id}`, content, conflict };
  const request_id = futures.submit(submission, () => {
    operations.check(seq_id);
    const giveBack = limits.bytes.take(bytes);
    return operations.run(seq_id, isOrdered, work, learns).finally(giveBack);
  });
  return { request_id, model_id };
}

/** Hash of a request's key, which distinguishes owners. */
export const ownerOf = ({ headers }: Pick<FastifyRequest, 'headers'>): string =>
  hash('sha256', keyOf(headers) ?? '', 'hex').slice(0, 32);

const hashOf = (content: object): string =>
  hash('sha256', content instanceof Uint8Array ? content : JSON.stringify(content), 'base64');
