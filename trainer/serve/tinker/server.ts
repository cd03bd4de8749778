import { createHash, randomInt, randomUUID } from 'node:crypto';
import { resolve } from 'node:path';
import type { FastifyRequest } from 'fastify';
import { LORA_MODULES, type LoraConfig, type LoraModule } from '../../models/adapters/lora.ts';
import { withLora } from '../../models/adapters/peft.ts';
import { loraSpecs } from '../../models/parameters.ts';
import { readAdapterWeights } from '../../policy/checkpoint/adapter-folder.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../../policy/local-policy.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { FutureReply, LoraSettings } from '../../tinker/wire.ts';
import type { Models, ModelsOptions } from '../models.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import { Checkpoints, type FoundCheckpoint } from './checkpoints.ts';
import { Futures } from './futures.ts';
import { type AdapterWeights, SamplerPool } from './samplers.ts';
import { TrainingModel } from './training-model.ts';

/** Alpha of every adapter, as the service and SkyRL have it. */
const ALPHA = 32;
const MAX_RANK = 256;
/** Sessions of one owner. */
const MAX_SESSIONS = 64;
/** Sampling requests of an owner at once, in all of its sessions. */
const MAX_OWNER_SAMPLES = 1024;
/** Samplers of a Tinker session, and models that it asked for; the oldest are forgotten. */
const MAX_SAMPLERS = 1024;
/** A Tinker session without a request for so long loses its models where room is needed, and in the end everything. */
const SILENT_MS = 60_000;
const ENDED_MS = 300_000;
const SWEEP_MS = 5_000;
const MLP: readonly LoraModule[] = ['gate_proj', 'up_proj', 'down_proj', 'gate_up_proj'];

export interface TinkerOptions {
  readonly models: Models;
  /** Settings that policies are computed with. */
  readonly policy: ModelsOptions['policy'];
  /** Folder of the base, which clients read its tokenizer from. */
  readonly folder: string;
  /** Name of the base; the folder's absolute path when absent. */
  readonly name?: string;
  /** Folder of named checkpoints. */
  readonly checkpoints: string;
  /** Adapters that are trained at once. */
  readonly maxModels: number;
  /** Longest wait of an operation for a smaller number that does not come; five and a half minutes when absent. */
  readonly gapMs?: number;
  /** Longest that a poll for a result is held; 30 seconds when absent. */
  readonly pollMs?: number;
}

/** A client's session: its models and samplers. */
export interface TinkerSession {
  readonly id: string;
  /** Hash of the key that it was created with. */
  readonly owner: string;
  seenAt: number;
  readonly models: Map<string, TrainingModel>;
  readonly creating: Map<string, { readonly fingerprint: string; readonly requestId: string }>;
  readonly samplers: Map<string, Sampler>;
  /** Sampling requests that go on, and bytes of training requests that wait or run. */
  openSamples: number;
  waitingBytes: number;
  readonly ended: AbortController;
}

export interface Sampler {
  readonly id: string;
  readonly fingerprint: string;
  /** `tinker://` path that it was made from. */
  readonly path: string | null;
  readonly checkpoint?: FoundCheckpoint;
  /** Null: the base alone. */
  readonly weights: () => Promise<AdapterWeights | null>;
  /** Samples by their number, for those that are submitted again; the newest. */
  readonly submitted: Map<number, { readonly fingerprint: string; readonly requestId: string }>;
}

/** The Tinker server: sessions of clients, each with models that it trains, over one base in memory. */
export class TinkerServer {
  readonly name: string;
  readonly tokenizerFolder: string;
  readonly futures = new Futures();
  readonly checkpoints: Checkpoints;
  readonly samplers: SamplerPool;
  /** Longest prompt and response together, in tokens. */
  readonly maxLength: number;
  /** Sampling requests of a session at once. */
  readonly maxOpenSamples = 256;
  readonly pollMs: number;
  readonly vocabularySize: number;
  readonly #options: TinkerOptions;
  readonly #sessions = new Map<string, TinkerSession>();
  readonly #sweeper: NodeJS.Timeout;

  /** @throws Error where the base is an adapter */
  constructor(options: TinkerOptions) {
    const { models, folder, name, checkpoints, maxModels } = options;
    const { policy } = models.base;
    if (policy.config.lora !== undefined) {
      throw new Error(`--tinker trains adapters over a model; ${folder} is an adapter: serve its base`);
    }
    this.#options = options;
    this.tokenizerFolder = resolve(folder);
    this.name = name ?? this.tokenizerFolder;
    this.pollMs = options.pollMs ?? 30_000;
    this.maxLength = policy.maxSequenceLength;
    this.vocabularySize = policy.vocabularySize;
    this.checkpoints = new Checkpoints(checkpoints);
    this.samplers = new SamplerPool(policy, lora => this.#openPolicy(lora, 0, true), maxModels + 2);
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  get architecture(): string {
    return this.#options.models.base.policy.config.architecture;
  }

  /** Tokens that end a response unless a request names others. */
  get stopTokenIds(): readonly number[] {
    return this.#options.models.base.stopTokenIds;
  }

  createSession(owner: string): TinkerSession {
    const own = [...this.#sessions.values()].filter(session => session.owner === owner);
    if (own.length >= MAX_SESSIONS) {
      throw new ApiError(429, `${MAX_SESSIONS} sessions of this key are open, which is the most: finish one`);
    }
    const session: TinkerSession = {
      id: randomUUID(),
      owner,
      seenAt: performance.now(),
      models: new Map(),
      creating: new Map(),
      samplers: new Map(),
      openSamples: 0,
      waitingBytes: 0,
      ended: new AbortController(),
    };
    this.#sessions.set(session.id, session);
    return session;
  }

  /** A session of this owner, which is alive from now on. @throws ApiError 410 */
  session(id: string, owner: string): TinkerSession {
    const session = this.#sessions.get(id);
    if (session === undefined || session.owner !== owner) {
      const why = `it ended, or was silent for ${ENDED_MS / 60_000} minutes`;
      throw new ApiError(410, `there is no session ${JSON.stringify(id.slice(0, 100))}: ${why}`);
    }
    session.seenAt = performance.now();
    return session;
  }

  /** The session and model of an id `<session>:train:<n>`. @throws ApiError 404 */
  model(id: string, owner: string): { readonly session: TinkerSession; readonly model: TrainingModel } {
    const session = this.#sessions.get(id.slice(0, id.indexOf(':')));
    const model = session?.owner === owner ? session.models.get(id) : undefined;
    if (session && model) return { session: this.session(session.id, owner), model };
    const name = JSON.stringify(id.slice(0, 200));
    throw new ApiError(
      404,
      `there is no model ${name}: it was unloaded, its session ended, or the server was started again`,
    );
  }

  /** The session and sampler of an id `<session>:sample:<n>`. @throws ApiError 404 */
  sampler(id: string, owner: string): { readonly session: TinkerSession; readonly sampler: Sampler } {
    const session = this.#sessions.get(id.slice(0, id.indexOf(':')));
    const sampler = session?.owner === owner ? session.samplers.get(id) : undefined;
    if (session && sampler) return { session: this.session(session.id, owner), sampler };
    throw new ApiError(404, `there is no sampling session ${JSON.stringify(id.slice(0, 200))}`);
  }

  /** Adds a sampler. @throws ApiError 400 where its number was used for another one */
  addSampler(session: TinkerSession, number: number, sampler: Omit<Sampler, 'id' | 'submitted'>): Sampler {
    const id = `${session.id}:sample:${number}`;
    const known = session.samplers.get(id);
    if (known) {
      if (known.fingerprint === sampler.fingerprint) return known;
      const field = 'sampling_session_seq_id';
      throw badRequest(`${field} ${number} was used for another sampler`, field);
    }
    const added = { id, submitted: new Map(), ...sampler };
    session.samplers.set(id, added);
    if (session.samplers.size > MAX_SAMPLERS) session.samplers.delete(session.samplers.keys().next().value!);
    return added;
  }

  /** The adapter of a checkpoint, read when it is used. */
  adapterOf(checkpoint: FoundCheckpoint): AdapterWeights {
    const config = withLora(this.#options.models.base.policy.config, checkpoint.lora);
    return {
      key: checkpoint.id,
      lora: config.lora!,
      read: async () => {
        for (const folder of await this.foldersOf(checkpoint)) {
          const store = new ParameterStore(loraSpecs(config, config.lora!));
          const fault = await readAdapterWeights(folder, config, store).catch((error: Error) => error);
          // It may have been overwritten meanwhile.
          if (!(await this.foldersOf(checkpoint)).includes(folder)) continue;
          if (fault) throw fault;
          return store.flat;
        }
        return this.adapterOf(checkpoint).read();
      },
    };
  }

  /** Folders of a sampler's checkpoint. @throws ApiError 404 where it is gone */
  async foldersOf(checkpoint: FoundCheckpoint): Promise<string[]> {
    const folders = await this.checkpoints.foldersOf(checkpoint);
    if (folders.length > 0) return folders;
    throw new ApiError(404, 'the checkpoint of this sampler was deleted, or has expired');
  }

  /** True if a sampler was made from the checkpoint with this id. */
  readonly usesCheckpoint = (id: string): boolean =>
    [...this.#sessions.values()].some(({ samplers }) =>
      [...samplers.values()].some(({ checkpoint }) => checkpoint?.id === id),
    );

  /** @throws ApiError 400 for a model that is not served */
  checkBase(name: string): void {
    if (name === this.name || name === this.tokenizerFolder) return;
    const asked = JSON.stringify(name.slice(0, 300));
    throw badRequest(`base_model ${asked} is not served; this server has ${this.name}`, 'base_model');
  }

  /** The adapter that a client asks for. @throws ApiError 400 */
  loraOf({ rank, train_mlp: mlp, train_attn: attention }: LoraSettings): LoraConfig {
    if (rank > MAX_RANK) throw badRequest(`lora_config.rank ${rank} is not 1 to ${MAX_RANK}`, 'lora_config');
    const modules = LORA_MODULES.filter(module => (MLP.includes(module) ? mlp : attention) !== false);
    if (modules.length === 0) {
      throw badRequest('lora_config trains nothing: set train_mlp, train_attn or both', 'lora_config');
    }
    const { config } = this.#options.models.base.policy;
    const whole = withLora(config, {
      rank,
      alpha: ALPHA,
      rankStabilized: false,
      dora: false,
      modules: [...LORA_MODULES],
    });
    return { ...whole.lora!, modules: whole.lora!.modules.filter(module => modules.includes(module)) };
  }

  /**
   * Opens a model of a session.
   * @param model fresh, or with the weights in `folder`
   * @throws ApiError 400 where there is no room
   */
  async createModel(
    session: TinkerSession,
    id: string,
    model: {
      readonly lora: LoraConfig;
      readonly seed?: number | null;
      readonly folder?: string;
      readonly optimizer?: boolean;
    },
  ): Promise<void> {
    const { lora, seed, folder, optimizer = false } = model;
    while (this.#modelCount() >= this.#options.maxModels) await this.#makeRoom(session);
    const policy = this.#openPolicy(lora, seed ?? randomInt(2 ** 31), false);
    const opened = new TrainingModel(id, lora, policy, this.#options.gapMs ?? 330_000);
    session.models.set(id, opened);
    try {
      await policy;
      if (folder !== undefined) await opened.load(folder, optimizer);
      if (session.ended.signal.aborted) throw new RangeError('the session has ended');
    } catch (error) {
      session.models.delete(id);
      await opened.close('the model could not be opened');
      throw error;
    }
  }

  /** Opens a model once, also where that is asked for again. @throws ApiError 400 where its number was used for another one */
  opening(session: TinkerSession, id: string, fingerprint: string, work: () => Promise<object>): FutureReply {
    const known = session.creating.get(id);
    if (known !== undefined && known.fingerprint !== fingerprint) {
      throw badRequest(`${id} was used for another model: count model_seq_id on`, 'model_seq_id');
    }
    const request_id = known?.requestId ?? this.futures.add(session, Promise.resolve().then(work));
    session.creating.set(id, { fingerprint, requestId: request_id });
    if (session.creating.size > MAX_SAMPLERS) session.creating.delete(session.creating.keys().next().value!);
    return { request_id, model_id: id };
  }

  /** The sum over the sessions of an owner of its sampling requests, or of the bytes of its training requests. */
  sumOf(count: 'openSamples' | 'waitingBytes', owner: string): number {
    const own = [...this.#sessions.values()].filter(session => session.owner === owner);
    return own.reduce((sum, session) => sum + session[count], 0);
  }

  /** Takes the place of a sampling request. @returns gives it back. @throws ApiError 429 */
  enterSample(session: TinkerSession): () => void {
    const full = session.openSamples >= this.maxOpenSamples;
    if (full || this.sumOf('openSamples', session.owner) >= MAX_OWNER_SAMPLES) {
      const most = full ? `${this.maxOpenSamples} of this session` : `${MAX_OWNER_SAMPLES} of this key`;
      throw new ApiError(429, `the most sampling requests are open: ${most}`, { retryAfterS: 1 });
    }
    session.openSamples++;
    return () => {
      session.openSamples--;
    };
  }

  /** True if a session belongs to this owner; it is alive from now on. */
  isAlive(session: TinkerSession, owner: string): boolean {
    if (session.owner !== owner) return false;
    session.seenAt = performance.now();
    return true;
  }

  async unloadModel(session: TinkerSession, id: string): Promise<void> {
    const model = session.models.get(id);
    session.models.delete(id);
    await model?.close('the model was unloaded');
  }

  /** Ends a session: its samples, models and results go. */
  async endSession(session: TinkerSession): Promise<void> {
    this.#sessions.delete(session.id);
    session.ended.abort(new Error('the session has ended'));
    await Promise.all([...session.models.keys()].map(id => this.unloadModel(session, id)));
    await this.checkpoints.sweep(this.usesCheckpoint);
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    await Promise.all([...this.#sessions.values()].map(session => this.endSession(session)));
    await this.samplers.close();
  }

  /** Frees the models of the session that has been silent longest. @throws ApiError 400 where none is silent */
  async #makeRoom(own: TinkerSession): Promise<void> {
    const [silent] = [...this.#sessions.values()]
      .filter(session => session !== own && session.models.size > 0)
      .filter(({ seenAt }) => performance.now() - seenAt > SILENT_MS)
      .sort((a, b) => a.seenAt - b.seenAt);
    if (silent === undefined) {
      const full = `${this.#modelCount()} models are open, which is the most (--max-models)`;
      throw badRequest(`${full}: unload one, or end its session`, 'model_id');
    }
    await Promise.all([...silent.models.keys()].map(id => this.unloadModel(silent, id)));
  }

  #modelCount(): number {
    return [...this.#sessions.values()].reduce((sum, { models }) => sum + models.size, 0);
  }

  async #openPolicy(lora: LoraConfig, seed: number, generationOnly: boolean): Promise<LocalPolicy> {
    const base = this.#options.models.base.policy;
    const { weights } = await base.weightsNow();
    const { files } = this.#options.models.base.tokenizer;
    const options: Partial<LocalPolicyOptions> = generationOnly ? { files } : { maxOpenSequences: 1 };
    return LocalPolicy.create({
      ...this.#options.policy,
      ...options,
      model: {
        config: { ...base.config, lora },
        folders: { base: this.tokenizerFolder, adapter: null },
        base: weights,
        weights: new ParameterStore([]),
      },
      precision: 'float32',
      seed,
      valueHead: false,
      generationOnly,
    });
  }

  #sweep(): void {
    for (const session of this.#sessions.values()) {
      if (performance.now() - session.seenAt > ENDED_MS) void this.endSession(session);
    }
    void this.checkpoints.sweep(this.usesCheckpoint);
    this.futures.sweep(owner => !this.#sessions.has((owner as TinkerSession).id));
  }
}

/** Hash of a request's key, which tells owners apart. */
export function ownerOf({ headers }: Pick<FastifyRequest, 'headers'>): string {
  const key = headers['x-api-key'] ?? headers.authorization ?? '';
  return createHash('sha256').update(String(key)).digest('hex').slice(0, 32);
}

export function hashOf(content: object): string {
  return createHash('sha256').update(JSON.stringify(content)).digest('base64');
}
