import { trainerLog } from '../../../shared/log.ts';
import { printable } from '../../../shared/text.ts';
import {
  decodeForwardBackwardOutput,
  encodeForwardBackwardRequest,
  type ForwardBackwardRequest,
  type WireDatum,
} from '../../tinker/proto.ts';
import type { OptimizerSettings } from '../policy.ts';
import { excerpt, TinkerError, type TinkerHttp, type TinkerReply } from './http.ts';
import { TINKER_PROFILES, type TinkerServer } from './profiles.ts';

const HEARTBEAT_MS = 10_000;
/** Milliseconds to wait for the server at the end of a session. */
const FINISH_MS = 2_000;
/** A request has at most this many datums, and about this many bytes (the SDK's limits). */
const MAX_DATUMS = 1024;
const MAX_BYTES = 5_000_000;
/** Bytes of a token in a datum: its id, its target, and a number of each input. */
const BYTES_PER_TOKEN = 12;

/** Settings of a model's adapters. */
export interface TinkerLora {
  readonly rank: number;
  readonly seed: number;
  readonly attention: boolean;
  readonly mlp: boolean;
}

/** A loss of the server. */
export type TinkerLoss = Pick<ForwardBackwardRequest, 'lossFn' | 'lossConfig'>;
export const CROSS_ENTROPY: TinkerLoss = { lossFn: 'cross_entropy', lossConfig: {} };

export interface TinkerSessionOptions {
  readonly server: TinkerServer;
  /** The server's name of the base model. */
  readonly baseModel: string;
  readonly lora: TinkerLora;
  readonly heartbeatMs?: number;
  readonly note: (text: string) => void;
}

/** A Tinker session: it numbers models and samplers, and its heartbeats keep them alive. */
export class TinkerSession {
  readonly http: TinkerHttp;
  readonly id: string;
  readonly #options: TinkerSessionOptions;
  readonly #heartbeat: NodeJS.Timeout;
  #isBeating = false;
  #models = 0;
  #samplers = 0;

  private constructor(http: TinkerHttp, id: string, options: TinkerSessionOptions) {
    this.http = http;
    this.id = id;
    this.#options = options;
    this.#heartbeat = setInterval(() => void this.#beat(), options.heartbeatMs ?? HEARTBEAT_MS).unref();
  }

  static async open(http: TinkerHttp, options: TinkerSessionOptions): Promise<TinkerSession> {
    const request = { tags: ['ragen'], user_metadata: {}, sdk_version: '0.38.0', type: 'create_session' };
    const reply = await http.json('POST', 'create_session', request);
    const { error_message: error, warning_message: warning, info_message: info } = reply;
    if (typeof error === 'string') throw new TinkerError(`${http.url}: ${excerpt(error)}`);
    for (const text of [warning, info])
      if (typeof text === 'string') options.note(`${http.url}: ${printable(excerpt(text))}`);
    return new TinkerSession(http, http.textOf(reply, 'session_id', 'create_session'), options);
  }

  /** Creates a model of the base; its adapters change nothing yet. */
  createModel(): Promise<TinkerModel> {
    const { rank, seed, mlp, attention } = this.#options.lora;
    const lora_config = { rank, seed, train_unembed: false, train_mlp: mlp, train_attn: attention };
    const optimizer_config = { type: 'adamw' };
    const base_model = this.#options.baseModel;
    return this.#model('create_model', { base_model, lora_config, optimizer_config });
  }

  /** Creates a model from a checkpoint, with or without the optimizer's state. */
  async loadModel(path: string, optimizer: boolean): Promise<TinkerModel> {
    const request = { path, optimizer };
    if (TINKER_PROFILES[this.#options.server].loadCreates) return this.#model('load_weights', request);
    const model = await this.createModel();
    await (await model.operation('load_weights', request))();
    return model;
  }

  async #model(type: string, request: object): Promise<TinkerModel> {
    const numbers = { session_id: this.id, model_seq_id: this.#models++ };
    const reply = await (await this.http.submit(type, { ...numbers, ...request, type }))();
    return new TinkerModel(this, this.http.textOf(reply, 'model_id', type));
  }

  /** A sampler of the base model. @returns its id */
  async createSampler(): Promise<string> {
    const type = 'create_sampling_session';
    const numbers = { session_id: this.id, sampling_session_seq_id: this.nextSampler() };
    const request = { ...numbers, base_model: this.#options.baseModel, type };
    const reply = await this.http.json('POST', type, request);
    return this.http.textOf(reply, 'sampling_session_id', type);
  }

  nextSampler(): number {
    return this.#samplers++;
  }

  /** Ends the session, where the server still answers. */
  async close(): Promise<void> {
    clearInterval(this.#heartbeat);
    const finished = { reason: { type: 'success' }, detail: '' };
    const finish = this.http.json('POST', `sessions/${encodeURIComponent(this.id)}/finish`, finished);
    await within(FINISH_MS, finish);
    await this.http.close();
  }

  async #beat(): Promise<void> {
    if (this.#isBeating) return;
    this.#isBeating = true;
    try {
      await this.http.json('POST', 'session_heartbeat', { session_id: this.id, type: 'session_heartbeat' });
    } catch (error) {
      const { status, message } = error as TinkerError;
      if (status !== 404 && status !== 410) return trainerLog().debug({ message }, 'no heartbeat');
      clearInterval(this.#heartbeat);
      const gone = `the server ended the session or was started again, and the session's models are gone`;
      const advice = 'resume the run, which continues from its last checkpoint';
      this.http.fail(new TinkerError(`${this.http.url}: ${gone}: ${advice} (${message})`));
    } finally {
      this.#isBeating = false;
    }
  }
}

/** Waits for work that may fail, and no longer than `ms`. */
export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  await Promise.race([work.catch(() => {}), new Promise(resolve => setTimeout(resolve, ms).unref())]);
}

/** Log-probabilities of targets by datum, and the server's metrics. */
export interface TinkerStep {
  readonly logProbs: readonly Float32Array[];
  readonly metrics: { readonly [name: string]: unknown };
}

/**
 * A learning model. Its operations are numbered: the caller submits one after the other, and reads results at any time.
 * After a failed submission nothing is sent, because a number would be missing.
 */
export class TinkerModel {
  readonly id: string;
  readonly #session: TinkerSession;
  #sequence = 0;
  #failure: unknown;

  constructor(session: TinkerSession, id: string) {
    this.#session = session;
    this.id = id;
  }

  /**
   * Submits datums; adds their gradient unless `forwardOnly`.
   * @returns a function that reads log p of their targets in nats
   */
  async forward(
    data: readonly WireDatum[],
    loss = CROSS_ENTROPY,
    forwardOnly = true,
  ): Promise<() => Promise<TinkerStep>> {
    const chunks: (() => Promise<TinkerStep>)[] = [];
    for (const part of chunked(data)) {
      const request = { modelId: this.id, data: part, ...loss, forwardOnly };
      const encoded = (seqId: number) => encodeForwardBackwardRequest({ ...request, seqId });
      const read = await this.#submit('forward_backward', encoded);
      chunks.push(async () => this.#stepOf(await read(), part));
    }
    return async () => {
      const parts = await Promise.all(chunks.map(read => read()));
      return {
        logProbs: parts.flatMap(({ logProbs }) => logProbs),
        metrics: Object.assign({}, ...parts.map(({ metrics }) => metrics)),
      };
    };
  }

  /** Submits one whole optimizer step before it waits for any result, so later submissions come after the step. */
  async step(
    data: readonly WireDatum[],
    loss: TinkerLoss,
    { learningRate, beta1, beta2, epsilon, weightDecay, clipNorm }: OptimizerSettings,
  ): Promise<() => Promise<TinkerStep>> {
    const readGradient = await this.forward(data, loss, false);
    const adam = { learning_rate: learningRate, beta1, beta2, eps: epsilon, weight_decay: weightDecay };
    const adam_params = { ...adam, grad_clip_norm: clipNorm };
    const readStep = await this.operation('optim_step', { adam_params });
    return async () => {
      const [found, stepped] = await Promise.all([readGradient(), readStep()]);
      const { metrics } = this.#session.http.asJson(stepped, 'optim_step');
      return { ...found, metrics: { ...found.metrics, ...(metrics as object | undefined) } };
    };
  }

  /** @returns path of the checkpoint, weights and optimizer */
  save(path: string, ttlSeconds: number | null): Promise<string> {
    const ttl = ttlSeconds === null ? {} : { ttl_seconds: ttlSeconds };
    return this.run('save_weights', { path, ...ttl }, 'path');
  }

  /** @returns id of a sampler of the weights after all earlier submissions */
  saveForSampler(): Promise<string> {
    const request = { sampling_session_seq_id: this.#session.nextSampler(), kind: 'snapshot' };
    return this.run('save_weights_for_sampler', request, 'sampling_session_id');
  }

  async unload(): Promise<void> {
    const request = { model_id: this.id, type: 'unload_model' };
    await (await this.#session.http.submit('unload_model', request))();
  }

  /** Submits an operation and waits for its result. @returns a text of it */
  async run(type: string, request: object, field: string): Promise<string> {
    const read = await this.operation(type, request);
    return this.#session.http.textOf(await read(), field, type);
  }

  operation(type: string, request: object): Promise<() => Promise<TinkerReply>> {
    return this.#submit(type, seq_id => ({ model_id: this.id, seq_id, ...request, type }));
  }

  async #submit(route: string, request: (number: number) => object): Promise<() => Promise<TinkerReply>> {
    if (this.#failure) throw this.#failure;
    try {
      return await this.#session.http.submit(route, request(++this.#sequence));
    } catch (error) {
      this.#failure = error;
      throw error;
    }
  }

  /** @throws TinkerError for results that do not fit the datums */
  #stepOf(reply: TinkerReply, data: readonly WireDatum[]): TinkerStep {
    const { http } = this.#session;
    const { outputs, metrics } = http.decoded(reply, decodeForwardBackwardOutput, 'forward_backward');
    const wrong = (what: string) => new TinkerError(`${http.url}: forward_backward: ${what}`);
    if (outputs.length !== data.length)
      throw wrong(`results of ${outputs.length} datums came, sent were ${data.length}`);
    const logProbs = outputs.map(({ logprobs }, i) => {
      const { length } = data[i].tokens;
      if (logprobs?.length === length) return logprobs;
      throw wrong(`datum ${i} has ${length} tokens, but ${logprobs?.length ?? 'no'} logprobs came`);
    });
    return { logProbs, metrics };
  }
}

/** Splits datums into requests that servers accept. */
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
