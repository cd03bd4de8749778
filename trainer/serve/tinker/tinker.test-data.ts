import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import {
  decodeForwardBackwardOutput,
  decodeSampleResponse,
  encodeForwardBackwardRequest,
  type ForwardBackwardOutput,
  type ForwardBackwardRequest,
  type SampleResponse,
  type WireTensor,
} from '../../tinker/proto.ts';
import { createServeApp } from '../app.ts';
import { Models } from '../models.ts';
import { goldenFolder } from '../serve.test-data.ts';
import { type TinkerOptions, TinkerServer } from './server.ts';

export const FOLDER = goldenFolder('qwen3-tiny');
export const floats = (...values: number[]): WireTensor => ({
  values: Float32Array.from(values),
  shape: [values.length],
});
export const ids = (...values: number[]): WireTensor => ({
  values: Int32Array.from(values),
  shape: [values.length],
});

export interface Reply {
  readonly status: number;
  readonly body: ReturnType<typeof JSON.parse>;
}

export type Datums = ForwardBackwardRequest['data'];

/** Datums that teach to continue 5 with 9, and so on. */
export const lesson = (weight = 1): Datums =>
  [
    [5, 9, 17, 23, 4],
    [8, 12, 31],
  ].map(all => ({
    tokens: Int32Array.from(all.slice(0, -1)),
    inputs: new Map([
      ['target_tokens', ids(...all.slice(1))],
      ['weights', floats(...all.slice(1).map(() => weight))],
    ]),
  }));

/** A client that sends what a test says, byte for byte. */
export class WireClient {
  readonly url: string;
  readonly key: string;
  readonly #sessions: string[] = [];

  constructor(url: string, key = 'tml-test') {
    this.url = url;
    this.key = key;
  }

  async post(route: string, body: unknown, headers: Record<string, string> = {}): Promise<Reply> {
    const binary = body instanceof Uint8Array;
    const reply = await fetch(`${this.url}/api/v1/${route}`, {
      method: 'POST',
      headers: {
        'content-type': binary ? 'application/x-protobuf' : 'application/json',
        'x-api-key': this.key,
        ...headers,
      },
      body: binary ? Buffer.from(body) : JSON.stringify(body),
    });
    return read(reply);
  }

  async get(route: string, method = 'GET'): Promise<Reply> {
    return read(await fetch(`${this.url}/api/v1/${route}`, { method, headers: { 'x-api-key': this.key } }));
  }

  /** The result of an operation. @throws Error where its submission was refused */
  async result({ status, body }: Reply): Promise<ReturnType<typeof JSON.parse>> {
    if (status !== 200) throw new Error(`${status}: ${body.detail}`);
    for (;;) {
      const reply = await this.post('retrieve_future', { request_id: body.request_id });
      if (reply.status !== 408) return reply.body;
    }
  }

  async session(): Promise<string> {
    const body = { tags: [], user_metadata: null, sdk_version: '0.38.0' };
    const { session_id: id } = (await this.post('create_session', body)).body;
    this.#sessions.push(id);
    return id;
  }

  /** Ends all sessions that are open. */
  async finishAll(): Promise<void> {
    const reason = { reason: { type: 'success' }, detail: '' };
    await Promise.all(this.#sessions.splice(0).map(id => this.post(`sessions/${id}/finish`, reason)));
  }

  /** A fresh model of a new session. */
  async model(base: string, seed = 1, rank = 4): Promise<WireModel> {
    const session_id = await this.session();
    const lora_config = { rank, seed, train_unembed: true, train_mlp: true, train_attn: true };
    const body = { session_id, model_seq_id: 0, base_model: base, lora_config };
    const { model_id, error } = await this.result(await this.post('create_model', body));
    if (error) throw new Error(error);
    return new WireModel(this, model_id, session_id);
  }
}

/** A model with the count of its requests. */
export class WireModel {
  readonly client: WireClient;
  readonly id: string;
  readonly session: string;
  next = 1;

  constructor(client: WireClient, id: string, session: string) {
    this.client = client;
    this.id = id;
    this.session = session;
  }

  submit(data: Datums, more: Partial<ForwardBackwardRequest> = {}): Promise<Reply> {
    const request = { modelId: this.id, data, lossFn: 'cross_entropy', lossConfig: {}, forwardOnly: false };
    const bytes = encodeForwardBackwardRequest({ ...request, seqId: more.seqId ?? this.next++, ...more });
    return this.client.post('forward_backward', bytes);
  }

  async forwardBackward(
    data: Datums,
    more: Partial<ForwardBackwardRequest> = {},
  ): Promise<ForwardBackwardOutput> {
    const result = await this.client.result(await this.submit(data, more));
    if (!(result instanceof Uint8Array)) throw new Error(result.error);
    return decodeForwardBackwardOutput(result);
  }

  /** An operation of a route, with the next number. */
  async operation(route: string, body: object): Promise<ReturnType<typeof JSON.parse>> {
    const numbered = { model_id: this.id, seq_id: this.next++, ...body };
    return this.client.result(await this.client.post(route, numbered));
  }

  step(adam: object = { learning_rate: 1e-2 }): Promise<ReturnType<typeof JSON.parse>> {
    return this.operation('optim_step', { adam_params: adam });
  }

  async sampler(number: number, more: object = {}): Promise<string> {
    const { sampling_session_id: id, error } = await this.operation('save_weights_for_sampler', {
      sampling_session_seq_id: number,
      kind: 'snapshot',
      ...more,
    });
    if (error) throw new Error(error);
    return id;
  }
}

export const sampleBody = (sampler: string, seq: number, more: object = {}): object => ({
  sampling_session_id: sampler,
  seq_id: seq,
  num_samples: 1,
  prompt: {
    chunks: [
      { type: 'encoded_text', tokens: [5, 9] },
      { type: 'encoded_text', tokens: [17] },
    ],
  },
  sampling_params: { max_tokens: 4, temperature: 1, top_k: -1, top_p: 1, seed: 7, stop: [] },
  ...more,
});

export async function sample(client: WireClient, body: object): Promise<SampleResponse> {
  const result = await client.result(await client.post('asample', body));
  if (!(result instanceof Uint8Array)) throw new Error(result.error);
  return decodeSampleResponse(result);
}

async function read(reply: Response): Promise<Reply> {
  const bytes = new Uint8Array(await reply.arrayBuffer());
  if (reply.headers.get('content-type')?.includes('protobuf')) return { status: reply.status, body: bytes };
  const text = Buffer.from(bytes).toString();
  return { status: reply.status, body: text === '' ? null : JSON.parse(text) };
}

export interface TestTinker {
  readonly client: WireClient;
  readonly url: string;
  readonly server: TinkerServer;
  readonly models: Models;
  readonly checkpoints: string;
}

/** A Tinker server of a golden model on a free port; it ends with the test. */
export async function startTinker(
  t: Pick<Test, 'teardown'>,
  { token, ...more }: Partial<TinkerOptions> & { readonly token?: string } = {},
): Promise<TestTinker> {
  const checkpoints = await mkdtemp(join(tmpdir(), 'ragen-tinker-'));
  const policy = { workers: 2, maxOpenSequences: 64 };
  const models = await Models.open({ folder: FOLDER, name: 'base', maxAdapters: 1, policy });
  const server = new TinkerServer({
    models,
    policy,
    folder: FOLDER,
    checkpoints,
    maxModels: 5,
    maxCheckpointMb: 1024,
    ...more,
  });
  const app = createServeApp({
    models,
    tinker: server,
    maxStreams: 64,
    logLevel: 'silent',
    host: '127.0.0.1',
    token,
  });
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  t.teardown(async () => {
    await app.close();
    await rm(checkpoints, { recursive: true, force: true });
  });
  return { client: new WireClient(url), url, server, models, checkpoints: more.checkpoints ?? checkpoints };
}
