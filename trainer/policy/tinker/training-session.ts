import type { JsonObject } from '../../../shared/json.ts';
import { trainerLog } from '../../../shared/log.ts';
import {
  decodeForwardBackwardOutput,
  encodeForwardBackwardRequest,
  TinkerProtocolError,
  type WireDatum,
} from '../../tinker/proto.ts';
import type { OptimizerSettings } from '../policy.ts';
import { bytesOf, jsonOf, TinkerError, type TinkerHttp, textOf } from './http.ts';
import type { TinkerProfile } from './profiles.ts';

const HEARTBEAT_MS = 10_000;
/** A request has at most so many datums, and about so many bytes (the SDK's limits). */
const MAX_DATUMS = 1024;
const MAX_BYTES = 5_000_000;
/** Bytes of a token in a datum: its id, its target, and a number of each input. */
const BYTES_PER_TOKEN = 12;

/** Adapters that a model learns. */
export interface TinkerLora {
  readonly rank: number;
  readonly seed: number;
  readonly attention: boolean;
  readonly mlp: boolean;
}

/** A loss of the server. */
export interface TinkerLoss {
  readonly name: string;
  readonly config: { readonly [name: string]: number };
}

/** A Tinker session: it numbers models and samplers, and its heartbeats keep them alive. */
export class TinkerSession {
  readonly http: TinkerHttp;
  readonly id: string;
  readonly #heartbeat: NodeJS.Timeout;
  #models = 0;
  #samplers = 0;

  private constructor(http: TinkerHttp, id: string, heartbeatMs: number) {
    this.http = http;
    this.id = id;
    this.#heartbeat = setInterval(() => void this.#beat(), heartbeatMs).unref();
  }

  static async open(http: TinkerHttp, heartbeatMs = HEARTBEAT_MS): Promise<TinkerSession> {
    const request = { tags: ['ragen'], user_metadata: {}, sdk_version: '0.38.0', type: 'create_session' };
    const reply = await http.post('create_session', request);
    if (typeof reply.error_message === 'string') throw new TinkerError(`${http.url}: ${reply.error_message}`);
    return new TinkerSession(http, textOf(reply, 'session_id', http.url), heartbeatMs);
  }

  /** A new model of the base: its adapters change nothing yet. */
  async createModel(baseModel: string, lora: TinkerLora): Promise<TinkerModel> {
    const request = {
      session_id: this.id,
      model_seq_id: this.#models++,
      base_model: baseModel,
      lora_config: {
        rank: lora.rank,
        seed: lora.seed,
        train_unembed: false,
        train_mlp: lora.mlp,
        train_attn: lora.attention,
      },
      optimizer_config: { type: 'adamw' },
      type: 'create_model',
    };
    return this.#made(await this.operation('create_model', request));
  }

  /** A model as a checkpoint has it, with the optimizer's state or without. */
  async loadModel(
    path: string,
    optimizer: boolean,
    baseModel: string,
    lora: TinkerLora,
    { loadCreates }: Pick<TinkerProfile, 'loadCreates'>,
  ): Promise<TinkerModel> {
    if (!loadCreates) {
      const model = await this.createModel(baseModel, lora);
      await model.load(path, optimizer);
      return model;
    }
    const numbers = { session_id: this.id, model_seq_id: this.#models++ };
    return this.#made(
      await this.operation('load_weights', { ...numbers, path, optimizer, type: 'load_weights' }),
    );
  }

  /** A sampler of the base model, or of a checkpoint for samplers. @returns its id */
  async createSampler(weights: { base_model: string } | { model_path: string }): Promise<string> {
    const numbers = { session_id: this.id, sampling_session_seq_id: this.nextSampler() };
    const request = { ...numbers, ...weights, type: 'create_sampling_session' };
    return textOf(
      await this.http.post('create_sampling_session', request),
      'sampling_session_id',
      'create_sampling_session',
    );
  }

  nextSampler(): number {
    return this.#samplers++;
  }

  /** Submits an operation and waits for its result. */
  async operation(route: string, request: object): Promise<JsonObject> {
    const { request_id } = await this.http.post(route, request);
    return jsonOf(await this.http.result(asId(request_id, route), route), route);
  }

  /** Ends the session, where the server still answers. */
  async close(): Promise<void> {
    clearInterval(this.#heartbeat);
    const finished = { reason: { type: 'success' }, detail: '' };
    const impatient = new Promise(resolve => setTimeout(resolve, 2_000).unref());
    await Promise.race([
      impatient,
      this.http.post(`sessions/${encodeURIComponent(this.id)}/finish`, finished).catch(() => {}),
    ]);
    await this.http.close();
  }

  #made(reply: JsonObject): TinkerModel {
    return new TinkerModel(this, textOf(reply, 'model_id', `${this.http.url}: create_model`));
  }

  async #beat(): Promise<void> {
    try {
      await this.http.post('session_heartbeat', { session_id: this.id, type: 'session_heartbeat' });
    } catch (error) {
      const { status, message } = error as TinkerError;
      if (status !== 404 && status !== 410) return trainerLog().debug({ message }, 'no heartbeat');
      clearInterval(this.#heartbeat);
      this.http.fail(
        new TinkerError(
          `${this.http.url}: the server ended the session, and its models with it: resume the run, which continues from its last checkpoint (${message})`,
        ),
      );
    }
  }
}

/** Log-probabilities of targets by datum, and what the server measured. */
export interface TinkerStep {
  readonly logProbs: readonly Float32Array[];
  readonly metrics: { readonly [name: string]: number };
}

/** A request of `forward_backward` that was accepted. */
interface Chunk {
  readonly id: string;
  readonly data: readonly WireDatum[];
}

/** A model that learns. Its operations are numbered and submitted in order; several may be under way. */
export class TinkerModel {
  readonly id: string;
  readonly #session: TinkerSession;
  #sequence = 0;
  /** Submissions follow one another; after one that failed none is sent, because numbers would be missing. */
  #submitted: Promise<unknown> = Promise.resolve();

  constructor(session: TinkerSession, id: string) {
    this.#session = session;
    this.id = id;
  }

  /** log p of the targets of datums in nats; changes nothing. */
  async forward(data: readonly WireDatum[]): Promise<readonly Float32Array[]> {
    const loss = { name: 'cross_entropy', config: {} };
    return (await this.#collect(await this.#inOrder(() => this.#submitChunks(data, loss, true)))).logProbs;
  }

  /**
   * Submits one optimizer step, all of it before anything is waited for: what is submitted next comes after it.
   * @returns its result
   */
  async step(
    data: readonly WireDatum[],
    loss: TinkerLoss,
    optimizer: OptimizerSettings,
  ): Promise<{ readonly result: Promise<TinkerStep> }> {
    const submitted = await this.#inOrder(async () => {
      const chunks = await this.#submitChunks(data, loss, false);
      const adam = {
        learning_rate: optimizer.learningRate,
        beta1: optimizer.beta1,
        beta2: optimizer.beta2,
        eps: optimizer.epsilon,
        weight_decay: optimizer.weightDecay,
        grad_clip_norm: optimizer.clipNorm,
      };
      return { chunks, optim: await this.#submit('optim_step', { adam_params: adam, type: 'optim_step' }) };
    });
    const result = this.#stepped(submitted);
    result.catch(() => {});
    return { result };
  }

  async #stepped({
    chunks,
    optim,
  }: {
    readonly chunks: readonly Chunk[];
    readonly optim: string;
  }): Promise<TinkerStep> {
    const [found, stepped] = await Promise.all([
      this.#collect(chunks),
      this.#session.http.result(optim, 'optim_step').then(reply => jsonOf(reply, 'optim_step')),
    ]);
    const metrics = Object.entries((stepped.metrics ?? {}) as JsonObject);
    const numbers = metrics.filter((entry): entry is [string, number] => typeof entry[1] === 'number');
    return { ...found, metrics: { ...found.metrics, ...Object.fromEntries(numbers) } };
  }

  /** @returns path of the checkpoint, weights and optimizer */
  async save(name: string, ttlSeconds: number | null): Promise<string> {
    const ttl = ttlSeconds === null ? {} : { ttl_seconds: ttlSeconds };
    return textOf(await this.#run('save_weights', { path: name, ...ttl }), 'path', 'save_weights');
  }

  /** @returns id of a sampler of the weights as they are after all that was submitted before */
  async saveForSampler(): Promise<string> {
    const request = { sampling_session_seq_id: this.#session.nextSampler(), kind: 'snapshot' };
    return textOf(
      await this.#run('save_weights_for_sampler', request),
      'sampling_session_id',
      'save_weights_for_sampler',
    );
  }

  async load(path: string, optimizer: boolean): Promise<void> {
    await this.#run('load_weights', { path, optimizer });
  }

  async unload(): Promise<void> {
    await this.#session.operation('unload_model', { model_id: this.id, type: 'unload_model' });
  }

  async #run(route: string, request: object): Promise<JsonObject> {
    const id = await this.#inOrder(() => this.#submit(route, { ...request, type: route }));
    return jsonOf(await this.#session.http.result(id, route), route);
  }

  #inOrder<T>(submit: () => Promise<T>): Promise<T> {
    const result = this.#submitted.then(submit);
    this.#submitted = result;
    result.catch(() => {});
    return result;
  }

  async #submit(route: string, request: object): Promise<string> {
    const numbered = { model_id: this.id, seq_id: this.#sequence + 1, ...request };
    const { request_id } = await this.#session.http.post(route, numbered);
    this.#sequence++;
    return asId(request_id, route);
  }

  async #submitChunks(data: readonly WireDatum[], loss: TinkerLoss, forwardOnly: boolean) {
    const chunks: Chunk[] = [];
    for (const part of chunked(data)) {
      const message = encodeForwardBackwardRequest({
        modelId: this.id,
        seqId: this.#sequence + 1,
        data: part,
        lossFn: loss.name,
        lossConfig: loss.config,
        forwardOnly,
      });
      const { request_id } = await this.#session.http.post('forward_backward', message);
      this.#sequence++;
      chunks.push({ id: asId(request_id, 'forward_backward'), data: part });
    }
    return chunks;
  }

  async #collect(chunks: readonly Chunk[]): Promise<TinkerStep> {
    const parts = await Promise.all(
      chunks.map(async ({ id, data }) =>
        this.#read(await this.#session.http.result(id, 'forward_backward'), data),
      ),
    );
    return {
      logProbs: parts.flatMap(({ logProbs }) => logProbs),
      metrics: Object.assign({}, ...parts.map(({ metrics }) => metrics)),
    };
  }

  /** @throws TinkerError for results that do not fit the datums */
  #read(reply: Parameters<typeof bytesOf>[0], data: readonly WireDatum[]): TinkerStep {
    const what = `${this.#session.http.url}: forward_backward`;
    try {
      const { outputs, metrics } = decodeForwardBackwardOutput(bytesOf(reply, what));
      if (outputs.length !== data.length)
        throw new TinkerError(`${what}: results of ${outputs.length} datums came, sent were ${data.length}`);
      const logProbs = outputs.map(({ logprobs }, i) => {
        const { length } = data[i].tokens;
        if (logprobs?.length === length) return logprobs;
        throw new TinkerError(
          `${what}: datum ${i} has ${length} tokens, but ${logprobs?.length ?? 'no'} logprobs came`,
        );
      });
      return { logProbs, metrics };
    } catch (error) {
      if (!(error instanceof TinkerProtocolError)) throw error;
      throw new TinkerError(`${what}: ${error.message}`);
    }
  }
}

/** Cuts datums into requests that servers take. */
function* chunked(data: readonly WireDatum[]): Generator<readonly WireDatum[]> {
  let part: WireDatum[] = [];
  let bytes = 0;
  for (const datum of data) {
    const size = datum.tokens.length * (BYTES_PER_TOKEN + 4 * datum.inputs.size);
    if (part.length > 0 && (part.length === MAX_DATUMS || bytes + size > MAX_BYTES)) {
      yield part;
      [part, bytes] = [[], 0];
    }
    part.push(datum);
    bytes += size;
  }
  if (part.length > 0) yield part;
}

function asId(value: unknown, route: string): string {
  if (typeof value === 'string' && value !== '') return value;
  throw new TinkerError(`${route}: the reply has no request_id`);
}
