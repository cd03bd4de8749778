import { SerialQueue } from '../../../shared/scheduling/serial-queue.ts';
import { predictedTokens } from '../../algorithms/losses/aggregation.ts';
import { batchMetrics } from '../../algorithms/losses/batch-metrics.ts';
import { checkLossSettings } from '../../algorithms/losses/check-settings.ts';
import type { GenerateRequest, Generation, StreamedToken } from '../../generation/generation.ts';
import { RemoteGenerator } from '../../generation/remote/remote-generator.ts';
import type { WireDatum } from '../../tinker/proto.ts';
import { type LossBatch, LossProgram } from '../learning/loss-program.ts';
import { scoreContinuations } from '../learning/score-program.ts';
import { checkSequence } from '../learning/token-masks.ts';
import type {
  ContinuationRequest,
  GradientDecomposition,
  Policy,
  PolicySampler,
  Score,
  ScoreRequest,
  ScoreSettings,
  UpdateBatch,
  UpdateMetrics,
  UpdateSettings,
} from '../policy.ts';
import {
  checkCheckpoint,
  deleteOlder,
  isTinkerPath,
  type KeptCheckpointsOptions,
  readTinkerCheckpoint,
  type TinkerCheckpoint,
  writeTinkerCheckpoint,
} from './checkpoint.ts';
import { TinkerError, TinkerHttp, type TinkerHttpOptions } from './http.ts';
import { damaged, gradientRoute, lossRoute, preparedLoss, scoredDatum, scoreOf, stepData } from './losses.ts';
import { checkCapabilities, gradientNorm, probeServer } from './probe.ts';
import { TINKER_PROFILES, type TinkerProfile } from './profiles.ts';
import { TinkerSampler, type TinkerSamplerOptions } from './sampler.ts';
import {
  type TinkerModel,
  TinkerSession,
  type TinkerSessionOptions,
  type TinkerStep,
  within,
} from './training-session.ts';

/** Milliseconds to wait for the server to drop a model; not every server does. */
const UNLOAD_MS = 5_000;

export interface TinkerPolicyOptions
  extends TinkerHttpOptions,
    TinkerSessionOptions,
    TinkerSamplerOptions,
    KeptCheckpointsOptions {
  /** Folder with the {@link TinkerCheckpoint} to continue from; without one the adapters are new. */
  readonly folder?: string;
  /** Seconds after which the server drops a checkpoint; null: it stays. */
  readonly ttlSeconds: number | null;
  /** Number of versions before the newest that stay available for requests in progress. */
  readonly olderVersions: number;
  /** Prices of a million tokens, in any currency. */
  readonly prices: { readonly prefill: number; readonly sample: number; readonly train: number };
  /** Written next to a checkpoint: a tokenizer's files by name. */
  readonly files: { readonly [name: string]: string };
  /** Only samples and scores: the server is not probed. */
  readonly generationOnly?: boolean;
}

/**
 * A policy with LoRA adapters at a Tinker server, which samples, scores and learns; losses, advantages and everything
 * else are computed here. Checkpoints are at the server, and their folder names them.
 */
export class TinkerPolicy implements Policy {
  readonly description: string;
  /** The server does not report it. */
  readonly parameterCount = 0;
  readonly vocabularySize: number;
  readonly maxSequenceLength: number;
  /** An update may be called before the one before has ended. */
  readonly pipelined = true;
  readonly sampler: PolicySampler;
  readonly #options: TinkerPolicyOptions;
  readonly #profile: TinkerProfile;
  readonly #session: TinkerSession;
  readonly #sampler: TinkerSampler;
  readonly #generator: RemoteGenerator;
  readonly #losses = new LossProgram();
  readonly #published: number[] = [];
  /** Paths of checkpoints at the server, the oldest first. */
  #kept: readonly string[];
  readonly #tokens: TinkerCheckpoint['tokens'];
  /** Token counts at the last call for metrics. */
  #shown: TinkerCheckpoint['tokens'];
  #model: TinkerModel;
  #version: number;
  /** The checkpoint of the present version, if there is one. */
  #saved: { readonly version: number; readonly path: string } | undefined;
  #reference: Promise<string> | undefined;
  /** Submissions follow one another: a later one sees the changes of an earlier one. */
  readonly #queue = new SerialQueue();

  private constructor(
    options: TinkerPolicyOptions,
    session: TinkerSession,
    model: TinkerModel,
    checkpoint: TinkerCheckpoint | undefined,
  ) {
    const { url, server, baseModel, lora, vocabularySize, maxSequenceLength } = options;
    this.#options = options;
    this.#profile = TINKER_PROFILES[server];
    this.#session = session;
    this.#model = model;
    this.description = `the Tinker server ${url} (${server}), ${baseModel} with LoRA of rank ${lora.rank}`;
    this.vocabularySize = vocabularySize;
    this.maxSequenceLength = maxSequenceLength;
    this.#saved = checkpoint;
    this.#version = checkpoint?.version ?? 0;
    this.#kept = checkpoint?.kept ?? [];
    this.#shown = checkpoint?.tokens ?? { prefilled: 0, sampled: 0, trained: 0 };
    this.#tokens = { ...this.#shown };
    this.#sampler = new TinkerSampler(session.http, options, this.#tokens);
    this.#generator = new RemoteGenerator({
      engines: [this.#sampler],
      maxSequenceLength,
      vocabularySize,
      grammars: {},
      // Errors of the sampler are final.
      patienceMs: 0,
      olderVersions: options.olderVersions,
      note: options.note,
    });
    this.sampler = {
      published: this.#published,
      publish: () => this.#publish(),
      takeMetrics: () => this.#takeMetrics(),
    };
  }

  /**
   * Opens a model at the server, new or from a checkpoint.
   * @throws Error naming the setting that does not fit the server; TinkerError for its rejections
   */
  static async open(options: TinkerPolicyOptions): Promise<TinkerPolicy> {
    const { server, vocabularySize, folder, note } = options;
    const checkpoint = folder === undefined ? undefined : await readTinkerCheckpoint(folder);
    if (checkpoint) checkCheckpoint(checkpoint, options);
    const http = new TinkerHttp(options);
    let session: TinkerSession | undefined;
    try {
      await checkCapabilities(http, options);
      session = await TinkerSession.open(http, options);
      if (!options.generationOnly) {
        const probe = await session.createModel();
        const isKnown = await probeServer(probe, server, vocabularySize);
        await within(UNLOAD_MS, probe.unload());
        const unknown = `${http.url} reports no gradient norm: that it is ${server} (policy.tinker.server) is not checked`;
        if (!isKnown) note(unknown);
      }
      const model = await (checkpoint ? session.loadModel(checkpoint.path, true) : session.createModel());
      return new TinkerPolicy(options, session, model, checkpoint);
    } catch (error) {
      await (session ?? http).close();
      throw error;
    }
  }

  get version(): number {
    return this.#version;
  }

  async generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    if (this.#published.length === 0) await this.#publish();
    return this.#generator.generate(request, watch);
  }

  release(sequenceId: number): void {
    this.#generator.release(sequenceId);
  }

  /** Entropies are NaN: the API does not return them. @throws RangeError for requests it cannot score */
  async score(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]> {
    this.#checkScored(sequences, settings);
    const data = this.#counted(sequences.map(scoredDatum));
    const read = await this.#queue.run(() => this.#model.forward(data));
    const { logProbs } = await read();
    return sequences.map((sequence, i) => scoreOf(this.#options.url, sequence, logProbs[i], 1));
  }

  /** Scores under the base model, without adapters. */
  async scoreReference(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]> {
    this.#checkScored(sequences, settings);
    this.#reference ??= this.#session.createSampler();
    const sampler = await this.#reference;
    const score = async (sequence: ScoreRequest) =>
      scoreOf(this.#options.url, sequence, await this.#sampler.scorePrompt(sampler, sequence.tokenIds), 0);
    return Promise.all(sequences.map(score));
  }

  /** The reference is always the base model: fresh adapters change nothing. */
  async loadReference(): Promise<void> {}

  scoreContinuations(
    requests: readonly ContinuationRequest[],
    settings?: ScoreSettings,
  ): Promise<Float64Array[]> {
    return scoreContinuations(requests, this, sequences => this.score(sequences, settings));
  }

  /**
   * One optimizer step at the server. It is sent once; if its result is lost or wrong, the error says so, and the run
   * continues from its last checkpoint.
   * @throws RangeError for settings or sequences that do not fit, before anything is sent; TinkerError
   */
  async update(
    { sequences }: UpdateBatch,
    { loss, optimizer, temperature }: UpdateSettings,
  ): Promise<UpdateMetrics> {
    checkLossSettings(loss);
    this.#check(sequences, 'training sequence', temperature);
    const trained = sequences.filter(({ weight }) => weight !== 0);
    const batch = preparedLoss(trained, loss);
    const { tokens, streams } = batch.counts;
    if (tokens === 0 && (streams?.crossEntropy?.tokens ?? 0) === 0)
      throw new RangeError('nothing to train on: no sequence has a token in its loss mask');
    const { read, found } = await this.#queue.run(() => this.#submitStep(batch, optimizer));
    const step = await read();
    const norm = gradientNorm(step.metrics);
    if (norm !== undefined && !Number.isFinite(norm))
      throw damaged(this.#options.url, `${norm} as the gradient's norm`);
    const metrics = found ?? (await this.#losses.run(batch, this.#trained(batch, step))).metrics;
    this.#version++;
    return {
      ...metrics,
      ...batchMetrics(sequences, loss),
      'actor/lr': optimizer.learningRate,
      ...(norm === undefined ? {} : { 'actor/grad_norm': norm }),
    };
  }

  async decomposeGradients(): Promise<GradientDecomposition> {
    throw new RangeError('diagnostics.gradients: a Tinker server returns no gradients');
  }

  /** Sampling continues from the last published weights. */
  holdingGeneration<T>(work: () => Promise<T>): Promise<T> {
    return work();
  }

  /** The same weights with a new optimizer. */
  async resetOptimizer(): Promise<void> {
    if (this.#version > 0) await this.#replaceModel(await this.#checkpointPath(), false);
  }

  async save(folder: string): Promise<void> {
    const { url, baseModel: base_model, lora, files } = this.#options;
    const path = await this.#checkpointPath();
    const model = { format: 1, url, base_model, rank: lora.rank, path, version: this.#version } as const;
    const facts = { ...model, tokens: this.#tokens, kept: [...this.#kept] };
    await writeTinkerCheckpoint(folder, facts, files);
    this.#kept = await deleteOlder(this.#session.http, this.#kept, this.#options);
  }

  /** Continues from a folder that {@link save} wrote. */
  async load(folder: string): Promise<void> {
    const checkpoint = await readTinkerCheckpoint(folder);
    if (!checkpoint) throw new RangeError(`${folder} holds no checkpoint of a Tinker server`);
    checkCheckpoint(checkpoint, this.#options);
    await this.#replaceModel(checkpoint.path, true);
    this.#version = checkpoint.version;
    this.#saved = checkpoint;
  }

  async close(): Promise<void> {
    await this.#generator.close();
    await within(UNLOAD_MS, this.#model.unload());
    await this.#session.close();
    await this.#losses.close();
  }

  /** @returns a function that reads the result of the step in progress, and its metrics if they are known before it */
  async #submitStep(batch: LossBatch, optimizer: UpdateSettings['optimizer']) {
    const { sequences } = batch;
    let route = lossRoute(batch, this.#profile);
    let found: UpdateMetrics | undefined;
    if (!route) {
      const score = await this.#model.forward(this.#counted(sequences.map(scoredDatum)));
      const logProbs = this.#trained(batch, await score());
      const { gradients, metrics } = await this.#losses.run(batch, logProbs);
      found = metrics;
      route = gradientRoute(gradients, logProbs);
    }
    const data = this.#counted(stepData(sequences, route, this.#profile));
    return { read: await this.#model.step(data, route.loss, optimizer), found };
  }

  /** log π of the trained tokens. @throws TinkerError for an impossible one */
  #trained({ sequences }: LossBatch, { logProbs }: TinkerStep): Float32Array[] {
    return sequences.map((sequence, i) => {
      const lossMask = predictedTokens(sequence);
      return scoreOf(this.#options.url, { ...sequence, lossMask }, logProbs[i], 1).logProbs;
    });
  }

  /** Counts trained and scored tokens, and rejects numbers that are not finite. */
  #counted(data: readonly WireDatum[]): readonly WireDatum[] {
    for (const { tokens, inputs } of data) {
      this.#tokens.trained += tokens.length;
      for (const [name, { values }] of inputs) {
        const wrong = values.find(value => !Number.isFinite(value));
        if (wrong !== undefined)
          throw new RangeError(`${name} has ${wrong}: nothing was sent, and the weights are unchanged`);
      }
    }
    return data;
  }

  #publish(): Promise<void> {
    return this.#queue.run(async () => {
      const version = this.#version;
      if (version === this.#published.at(-1)) return;
      await this.#generator.publish(version, await this.#model.saveForSampler(), '');
      this.#generator.takeOldFolders();
      this.#published.push(version);
    });
  }

  #takeMetrics(): Record<string, number> {
    const { prices } = this.#options;
    const { prefilled, sampled, trained } = this.#tokens;
    const cost = prefilled * prices.prefill + sampled * prices.sample + trained * prices.train;
    const metrics = {
      ...this.#generator.takeMetrics(),
      'tinker/prefill_tokens': prefilled - this.#shown.prefilled,
      'tinker/sampled_tokens': sampled - this.#shown.sampled,
      'tinker/trained_tokens': trained - this.#shown.trained,
      ...(cost > 0 ? { 'tinker/cost': cost / 1e6 } : {}),
    };
    this.#shown = { ...this.#tokens };
    return metrics;
  }

  /** Path of a checkpoint of the present weights. */
  async #checkpointPath(): Promise<string> {
    const version = this.#version;
    if (this.#saved?.version === version) return this.#saved.path;
    const { url, ttlSeconds } = this.#options;
    const name = `v${String(version).padStart(6, '0')}`;
    const path = await this.#queue.run(() => this.#model.save(name, ttlSeconds));
    if (!isTinkerPath(path))
      throw new TinkerError(`${url}: save_weights: ${path} is not a path of a checkpoint`);
    this.#saved = { version, path };
    this.#kept = [...this.#kept, path];
    return path;
  }

  async #replaceModel(path: string, optimizer: boolean): Promise<void> {
    await this.#queue.run(async () => {
      const old = this.#model;
      this.#model = await this.#session.loadModel(path, optimizer);
      this.#published.length = 0;
      await within(UNLOAD_MS, old.unload());
    });
  }

  #checkScored(sequences: readonly ScoreRequest[], settings: ScoreSettings | undefined): void {
    if (settings?.squares) throw new RangeError('a Tinker server returns no sums over the vocabulary');
    this.#check(sequences, 'sequence to score', settings?.temperature);
  }

  #check(sequences: readonly ScoreRequest[], what: string, temperature = 1): void {
    if (temperature !== 1)
      throw new RangeError(`a Tinker server scores and trains at temperature 1, not at ${temperature}`);
    sequences.forEach((sequence, index) => {
      checkSequence(sequence, this, `${what} ${index}`);
      if (sequence.grammar !== undefined)
        throw new RangeError('a Tinker server scores and trains without a grammar');
    });
  }
}
