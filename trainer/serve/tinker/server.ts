import { randomInt, randomUUID } from 'node:crypto';
import { resolve } from 'node:path';
import type { Static } from 'typebox';
import { Slots } from '../../../shared/scheduling/queues.ts';
import { counted } from '../../../shared/text.ts';
import { LORA_MODULES, type LoraConfig, type LoraModule } from '../../models/adapters/lora.ts';
import { withLora } from '../../models/adapters/peft.ts';
import { LossProgram } from '../../policy/learning/loss-program.ts';
import { LocalPolicy, type LocalPolicyOptions } from '../../policy/local-policy.ts';
import { openSequences } from '../../policy/options.ts';
import { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { Budget } from '../access.ts';
import type { Models, ModelsOptions } from '../models.ts';
import { ApiError, badRequest } from '../openai/errors.ts';
import type { Lora } from './bodies.ts';
import { Checkpoints, type FoundCheckpoint } from './checkpoints.ts';
import { Futures, type Result } from './futures.ts';
import { type AdapterWeights, SamplerPool } from './samplers.ts';
import { TrainingModel } from './training-model.ts';

/** Alpha of every adapter, as in the service and SkyRL. */
const ALPHA = 32;
const MAX_RANK = 256;
/** Most sessions of a key, its sampling requests at once, and bytes of its training requests that wait or run. */
const MAX_SESSIONS = 64;
/** Most sessions of all keys: without a token anybody makes up keys. The longest silent one without a model gives way. */
const MAX_ALL_SESSIONS = 4096;
const MAX_KEY_SAMPLES = 1024;
const MAX_WAITING_BYTES = 256 * 2 ** 20;
/** Sampling requests of a session at once. */
export const MAX_SAMPLES = 256;
/** Samplers of a Tinker session; the oldest are forgotten. */
const MAX_SAMPLERS = 1024;
/** A Tinker session that is silent for this long loses its models where room is needed, and eventually everything. */
const SILENT_MS = 60_000;
const ENDED_MS = 300_000;
const SWEEP_MS = 5_000;
/** Most bodies that are unpacked and read at once: each takes memory up to their limit. Keys take turns. */
const MAX_UNPACKING = 2;
const MLP: readonly LoraModule[] = ['gate_proj', 'up_proj', 'down_proj', 'gate_up_proj'];

export interface TinkerOptions {
  readonly models: Models;
  /** Settings of the policies. */
  readonly policy: ModelsOptions['policy'];
  /** Folder of the base, which clients read its tokenizer from. */
  readonly folder: string;
  /** Name of the base; the folder's absolute path when absent. */
  readonly name?: string;
  /** Folder of named checkpoints. */
  readonly checkpoints: string;
  /** MiB that their folder may take. */
  readonly maxCheckpointMb: number;
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
  readonly samplers: Map<string, Sampler>;
  readonly futures: Futures;
  /** Sampling requests. */
  readonly samples: Budget;
  /** Those of its key: sampling requests, and bytes of training requests that wait or run. */
  readonly limits: { readonly samples: Budget; readonly bytes: Budget };
  readonly ended: AbortController;
}

export interface FoundModel {
  readonly session: TinkerSession;
  readonly model: TrainingModel;
}

export interface Sampler {
  readonly id: string;
  /** Hash of the request for it. */
  readonly content: string;
  /** `tinker://` path of its checkpoint. */
  readonly path: string | null;
  readonly checkpoint?: FoundCheckpoint;
  /** Null: the base without an adapter. */
  readonly weights: () => Promise<AdapterWeights | null>;
}

/** A model to open: fresh, or with the weights in a folder. */
interface NewModel {
  readonly lora: LoraConfig;
  readonly seed?: number | null;
  readonly folder?: string;
  readonly optimizer?: boolean | null;
}

/** The Tinker server: sessions of clients, each with models that it trains, over one base in memory. */
export class TinkerServer {
  readonly name: string;
  readonly tokenizerFolder: string;
  readonly losses = new LossProgram();
  readonly checkpoints: Checkpoints;
  readonly samplers: SamplerPool;
  readonly unpacking = new Slots({ most: MAX_UNPACKING });
  /** The base, which samples without an adapter. */
  readonly base: LocalPolicy;
  /** Tokens that end a response unless a request names others. */
  readonly stopTokenIds: readonly number[];
  readonly #options: TinkerOptions;
  readonly #pollMs: number;
  readonly #sessions = new Map<string, TinkerSession>();
  /** Ends of models that are being unloaded, with the hash of their key. */
  readonly #closing = new Map<Promise<unknown>, string>();
  /** Start of all request ids: those of a server that ran before are not known. */
  readonly #run = randomUUID();
  readonly #sweeper: NodeJS.Timeout;

  /** @throws Error where the base is an adapter */
  constructor(options: TinkerOptions) {
    const { models, folder, name, maxModels, pollMs = 30_000 } = options;
    this.base = models.base.policy;
    if (this.base.config.lora !== undefined) {
      throw new Error(`--tinker trains adapters over a model; ${folder} is an adapter: serve its base`);
    }
    this.#options = options;
    this.tokenizerFolder = resolve(folder);
    this.name = name ?? this.tokenizerFolder;
    this.#pollMs = pollMs;
    this.stopTokenIds = models.base.stopTokenIds;
    this.checkpoints = new Checkpoints(resolve(options.checkpoints), options.maxCheckpointMb);
    this.samplers = new SamplerPool(this.base, lora => this.#openPolicy(lora, 0, true), {
      maxPolicies: maxModels + 2,
      maxSequences: openSequences(options.policy),
    });
    this.#sweeper = setInterval(() => this.#sweep(), SWEEP_MS).unref();
  }

  /** @param owner hash of its key @throws ApiError 429 where the key has too many, or all have with their models */
  createSession(owner: string): TinkerSession {
    const own = [...this.#sessions.values()].filter(session => session.owner === owner);
    if (own.length >= MAX_SESSIONS) {
      throw new ApiError(429, `${MAX_SESSIONS} sessions of this key are open, the limit: finish one`);
    }
    if (this.#sessions.size >= MAX_ALL_SESSIONS) {
      const silent = this.#silent(false);
      if (!silent) throw new ApiError(429, `${MAX_ALL_SESSIONS} sessions with models are open, the limit`);
      void this.endSession(silent);
    }
    const open = (of: string) => (used: number) =>
      `${used} sampling requests of this ${of} are open, the limit`;
    const waiting = (used: number) => `${Math.round(used / 2 ** 20)} MiB of training requests wait`;
    const limits = own[0]?.limits ?? {
      samples: new Budget(MAX_KEY_SAMPLES, open('key')),
      bytes: new Budget(MAX_WAITING_BYTES, used => `${waiting(used)}; send more when some are done`),
    };
    const id = randomUUID();
    const folders = [this.tokenizerFolder, resolve(this.#options.checkpoints)];
    const session: TinkerSession = {
      id,
      owner,
      seenAt: performance.now(),
      models: new Map(),
      samplers: new Map(),
      futures: new Futures(folders, `${this.#run}:${id}:`),
      samples: new Budget(MAX_SAMPLES, open('session'), limits.samples),
      limits,
      ended: new AbortController(),
    };
    this.#sessions.set(id, session);
    return session;
  }

  /**
   * Waits for a result, as long as a poll is held.
   * @throws ApiError 410 where the result was dropped, 404 where there never was one
   */
  async result(requestId: string, owner: string, signal: AbortSignal): Promise<Result | undefined> {
    const [run, id = '', ...rest] = requestId.split(':');
    const isOthers = (this.#sessions.get(id)?.owner ?? owner) !== owner;
    const name = JSON.stringify(requestId.slice(0, 200));
    if (run !== this.#run || isOthers)
      throw new ApiError(404, `there is no request ${name} since the server was started`);
    return this.session(id, owner).futures.read(rest.join(':'), this.#pollMs, signal);
  }

  /** A session of this owner, which is alive from now on. @throws ApiError 410 */
  session(id: string, owner: string): TinkerSession {
    const session = this.#sessionOf(id, owner);
    if (session?.id === id) return session;
    const why = `it ended, or was silent for ${ENDED_MS / 60_000} minutes`;
    throw new ApiError(410, `there is no session ${JSON.stringify(id.slice(0, 100))}: ${why}`);
  }

  /** The session and model of an id `<session>:train:<n>`. @throws ApiError 404 */
  model(id: string, owner: string): FoundModel {
    const session = this.#sessionOf(id, owner);
    const model = session?.models.get(id);
    if (session && model) return { session, model };
    const why = 'it was unloaded, its session was silent or ended, or the server was started again';
    throw new ApiError(404, `there is no model ${JSON.stringify(id.slice(0, 200))}: ${why}`);
  }

  /**
   * Uses up the number of an operation that was refused for good, if it names one of a model of this owner.
   * @param learns true where a gradient is missing now
   * @returns true if it names one
   */
  refuse(
    { model_id: id, seq_id: seqId, learns }: { model_id: unknown; seq_id: unknown; learns: boolean },
    owner: string,
    why: string,
  ): boolean {
    if (typeof id !== 'string' || !Number.isSafeInteger(seqId)) return false;
    const model = this.#sessionOf(id, owner)?.models.get(id);
    model?.operations.refuse(seqId as number, why, learns);
    return model !== undefined && seqId !== 0;
  }

  /** The session and sampler of an id `<session>:sample:<n>`. @throws ApiError 404 */
  sampler(id: string, owner: string): { readonly session: TinkerSession; readonly sampler: Sampler } {
    const session = this.#sessionOf(id, owner);
    const sampler = session?.samplers.get(id);
    if (session && sampler) return { session, sampler };
    throw new ApiError(404, `there is no sampling session ${JSON.stringify(id.slice(0, 200))}`);
  }

  /** The session that an id begins with, which is alive from now on. */
  #sessionOf(id: string, owner: string): TinkerSession | undefined {
    const session = this.#sessions.get(id.split(':')[0]);
    if (session?.owner !== owner) return undefined;
    session.seenAt = performance.now();
    return session;
  }

  /** Adds a sampler once. @throws ApiError 400 where its number was used for another one */
  addSampler(
    { id: sessionId, samplers }: TinkerSession,
    number: number,
    sampler: Omit<Sampler, 'id'>,
  ): Sampler {
    const id = `${sessionId}:sample:${number}`;
    const known = samplers.get(id);
    const field = 'sampling_session_seq_id';
    if (known?.content === sampler.content) return known;
    if (known) throw badRequest(`${field} ${number} was used for another sampler`, field);
    const added = { id, ...sampler };
    samplers.set(id, added);
    if (samplers.size > MAX_SAMPLERS) samplers.delete(samplers.keys().next().value!);
    return added;
  }

  /** @throws ApiError 400 for a model that is not served */
  checkBase(name: string): void {
    if (name === this.name || name === this.tokenizerFolder) return;
    const asked = JSON.stringify(name.slice(0, 300));
    throw badRequest(`base_model ${asked} is not served; this server has ${this.name}`, 'base_model');
  }

  /** The adapter that a client asks for. @throws ApiError 400 */
  loraOf({ rank, train_mlp: mlp, train_attn: attention }: Static<typeof Lora>): LoraConfig {
    if (rank > MAX_RANK) throw badRequest(`lora_config.rank ${rank} is not 1 to ${MAX_RANK}`, 'lora_config');
    const form = { rank, alpha: ALPHA, rankStabilized: false, dora: false, modules: [...LORA_MODULES] };
    const lora = withLora(this.base.config, form).lora!;
    const modules = lora.modules.filter(module => (MLP.includes(module) ? mlp : attention) !== false);
    if (modules.length > 0) return { ...lora, modules };
    throw badRequest('lora_config trains nothing: set train_mlp, train_attn or both', 'lora_config');
  }

  /**
   * Opens a model of a session, once.
   * @param content hash of the request
   * @returns the reply to the request
   * @throws ApiError 400 where its number was used for another one
   */
  openModel(
    session: TinkerSession,
    number: number,
    content: string,
    model: NewModel,
    result: object,
  ): object {
    const id = `${session.id}:train:${number}`;
    const conflict = `model_seq_id ${number} was used for another model`;
    const request_id = session.futures.submit({ id: `${id}:open`, content, conflict }, async () => {
      if (session.models.has(id)) throw badRequest(conflict, 'model_seq_id');
      await this.#createModel(session, id, model);
      return { ...result, model_id: id };
    });
    return { request_id, model_id: id };
  }

  /** @throws ApiError 400 where there is no room */
  async #createModel(session: TinkerSession, id: string, model: NewModel): Promise<void> {
    const { lora, seed, folder, optimizer } = model;
    const { maxModels } = this.#options;
    const share = Math.max(1, maxModels - 1);
    for (;;) {
      session.ended.signal.throwIfAborted();
      // Counted again after each wait: others of this key may have opened meanwhile.
      const [own, all] = [this.#modelCount(session.owner), this.#modelCount()];
      if (own >= share)
        throw badRequest(
          `this key has ${counted(share, 'model')} open, the limit: unload one, or end its session`,
          'model_id',
        );
      const closing = [...this.#closing];
      const mine = closing.filter(([, owner]) => owner === session.owner);
      const awaited = own + mine.length >= share ? mine : all + closing.length >= maxModels ? closing : [];
      if (awaited.length > 0) await Promise.race(awaited.map(([ended]) => ended));
      else if (all < maxModels) break;
      else await this.#makeRoom();
    }
    const policy = this.#openPolicy(lora, seed ?? randomInt(2 ** 31), false);
    const opened = new TrainingModel(id, lora, policy, this.#options.gapMs ?? 330_000);
    session.models.set(id, opened);
    try {
      await policy;
      if (folder !== undefined) await opened.load(folder, optimizer === true);
      if (!session.models.has(id))
        throw new RangeError('the session has ended, or another one needed the room');
    } catch (error) {
      session.models.delete(id);
      await opened.close('the model could not be opened');
      throw error;
    }
  }

  /** Ends a model. It counts until what it runs is over, as its memory is in use that long. */
  async unloadModel({ models, owner }: TinkerSession, id: string): Promise<void> {
    const closed = models.get(id)?.close('the model was unloaded');
    models.delete(id);
    const ended: Promise<unknown> = Promise.allSettled([closed]).then(() => this.#closing.delete(ended));
    if (closed) this.#closing.set(ended, owner);
    await closed;
  }

  /** Ends a session: its samples, models and results go. */
  async endSession(session: TinkerSession): Promise<void> {
    this.#sessions.delete(session.id);
    session.ended.abort(new Error('the session has ended'));
    await Promise.all([...session.models.keys()].map(id => this.unloadModel(session, id)));
  }

  /** The session that has been silent for longest, of those with models or of those without. */
  #silent(hasModels: boolean): TinkerSession | undefined {
    const some = [...this.#sessions.values()].filter(({ models }) => models.size > 0 === hasModels);
    return some.reduce<TinkerSession | undefined>(
      (silent, session) => (silent && silent.seenAt <= session.seenAt ? silent : session),
      undefined,
    );
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    await Promise.all([...this.#sessions.values()].map(session => this.endSession(session)));
    await Promise.all([this.samplers.close(), this.losses.close()]);
  }

  /** Frees the models of a session that has been silent. @throws ApiError 400 where there is none */
  async #makeRoom(): Promise<void> {
    const silent = this.#silent(true);
    if (!silent || performance.now() - silent.seenAt <= SILENT_MS) {
      const full = `the limit of ${counted(this.#options.maxModels, 'model')} is reached (--max-models)`;
      throw badRequest(`${full}: unload one, or end its session`, 'model_id');
    }
    await Promise.all([...silent.models.keys()].map(id => this.unloadModel(silent, id)));
  }

  #modelCount(key?: string): number {
    const all = [...this.#sessions.values()].filter(({ owner }) => owner === (key ?? owner));
    return all.reduce((sum, { models }) => sum + models.size, 0);
  }

  async #openPolicy(lora: LoraConfig, seed: number, generationOnly: boolean): Promise<LocalPolicy> {
    const { base, weights } = await this.base.weightsNow();
    const { files } = this.#options.models.base.tokenizer;
    const options: Partial<LocalPolicyOptions> = generationOnly ? { files } : { maxOpenSequences: 1 };
    return LocalPolicy.create({
      ...this.#options.policy,
      ...options,
      model: {
        config: { ...this.base.config, lora },
        folders: { base: this.tokenizerFolder, adapter: null },
        base: base ?? weights,
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
      else session.futures.sweep();
    }
  }
}
