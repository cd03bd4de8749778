import { join } from 'node:path';
import type { GenerateRequest, Generation } from '../generation/generation.ts';
import type { WeightDtype } from '../models/files/stored-numbers.ts';
import type { LocalPolicy } from './local-policy.ts';
import type {
  ContinuationRequest,
  GradientDecomposition,
  GradientSettings,
  Policy,
  Score,
  ScoreRequest,
  ScoreSettings,
  UpdateBatch,
  UpdateMetrics,
  UpdateSettings,
} from './policy.ts';

/** Folder of the critic within a policy's folder. */
export const CRITIC_FOLDER = 'critic';

/**
 * A policy with values that a separate critic estimates: a second model that learns from the same mini-batches, at a
 * separate rate. Its weights and its optimizer's state are kept in a folder within the policy's.
 */
export class ActorCritic implements Policy {
  readonly actor: Policy;
  readonly critic: LocalPolicy;

  constructor(actor: Policy, critic: LocalPolicy) {
    this.actor = actor;
    this.critic = critic;
  }

  get version(): number {
    return this.actor.version;
  }

  get vocabularySize(): number {
    return this.actor.vocabularySize;
  }

  get maxSequenceLength(): number {
    return this.actor.maxSequenceLength;
  }

  generate(request: GenerateRequest): Promise<Generation> {
    return this.actor.generate(request);
  }

  release(sequenceId: number): void {
    this.actor.release(sequenceId);
  }

  score(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]> {
    return this.actor.score(sequences, settings);
  }

  scoreContinuations(
    requests: readonly ContinuationRequest[],
    settings?: ScoreSettings,
  ): Promise<Float64Array[]> {
    return this.actor.scoreContinuations(requests, settings);
  }

  estimate(sequences: readonly ScoreRequest[]): Promise<Float32Array[]> {
    return this.critic.estimate(sequences);
  }

  /**
   * One optimizer step of each.
   * @throws RangeError where the settings hold no optimizer for the critic; else as the policy's own
   */
  async update(batch: UpdateBatch, settings: UpdateSettings): Promise<UpdateMetrics> {
    const { critic: optimizer } = settings;
    if (optimizer === undefined) {
      throw new RangeError('the settings of an update with a critic need its optimizer (`critic`)');
    }
    const learned = await this.critic.update(batch, { ...settings, optimizer });
    return { ...criticMetrics(learned), ...(await this.actor.update(batch, settings)) };
  }

  decomposeGradients(
    batches: readonly UpdateBatch[],
    settings: GradientSettings,
  ): Promise<GradientDecomposition> {
    return this.actor.decomposeGradients(batches, settings);
  }

  holdingGeneration<T>(work: () => Promise<T>): Promise<T> {
    return this.actor.holdingGeneration(work);
  }

  withAverage<T>(work: () => Promise<T>): Promise<T> {
    if (!this.actor.withAverage) throw new Error('the policy does not average its weights');
    return this.actor.withAverage(work);
  }

  async save(folder: string, dtype?: WeightDtype): Promise<void> {
    await this.actor.save(folder, dtype);
    await this.critic.save(join(folder, CRITIC_FOLDER), dtype);
  }

  async load(folder: string): Promise<void> {
    await this.actor.load(folder);
    await this.critic.load(join(folder, CRITIC_FOLDER));
  }

  async close(): Promise<void> {
    await Promise.all([this.actor.close(), this.critic.close()]);
  }
}

/** The critic's part of the metrics of its update, under its names. */
function criticMetrics(metrics: UpdateMetrics): UpdateMetrics {
  return Object.fromEntries(
    Object.entries(metrics).flatMap(([name, value]) => {
      if (name.startsWith('critic/')) return [[name, value]];
      return OPTIMIZER_METRICS.has(name) ? [[name.replace('actor/', 'critic/'), value]] : [];
    }),
  );
}

const OPTIMIZER_METRICS: ReadonlySet<string> = new Set([
  'actor/grad_norm',
  'actor/lr',
  'actor/loss_scale',
  'actor/step_skipped',
]);
