import { join } from 'node:path';
import { SerialQueue } from '../../shared/scheduling/serial-queue.ts';
import type { LossSettings } from '../algorithms/losses/settings.ts';
import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import type { GenerateRequest, Generation, StreamedToken } from '../generation/generation.ts';
import type { DecoderConfig } from '../models/config.ts';
import type { WeightDtype } from '../models/files/stored-numbers.ts';
import { countWeights, parameterSpecs } from '../models/parameters.ts';
import { assertSameModel } from './checkpoint/model-folder.ts';
import { clipFactor } from './learning/adamw.ts';
import { LossGradients } from './learning/loss-gradients.ts';
import { scoreContinuations } from './learning/score-program.ts';
import { checkSequence, checkTemperature } from './learning/token-masks.ts';
import type { LocalPolicyOptions, ModelState } from './options.ts';
import { type PolicyParts, prepare } from './parts.ts';
import type {
  ContinuationRequest,
  GradientDecomposition,
  GradientSettings,
  OptimizerSettings,
  Policy,
  Score,
  ScoreRequest,
  ScoreSettings,
  UpdateBatch,
  UpdateMetrics,
  UpdateSettings,
} from './policy.ts';
import { PolicyState } from './policy-state.ts';
import { WorkerPool } from './workers/worker-pool.ts';

export type { LocalPolicyOptions } from './options.ts';

/** Folder of the critic within a policy's folder. */
export const CRITIC_FOLDER = 'critic';

/**
 * A policy on this machine: a decoder in ONNX Runtime on several worker threads, or on the GPU that one thread drives. Sequences are spread over
 * the workers; an update computes the gradient of each worker's share, adds them up in a fixed order and takes one
 * AdamW step on the shared weights, so that equal calls give equal bits.
 *
 * @example
 * const policy = await LocalPolicy.create({
 *   model: scratchConfig({ vocabularySize: 46 }), // or a folder
 *   seed: 0,
 *   workers: 2,
 *   valueHead: true,
 *   maxSequenceLength: 161,
 *   maxOpenSequences: 256,
 *   grammars: { answer: { start: 0, states: [...] } },
 *   files: tokenizer.files,
 * });
 */
export class LocalPolicy implements Policy {
  readonly config: DecoderConfig;
  readonly maxSequenceLength: number;
  /** Includes value head and adapters. */
  readonly parameterCount: number;
  /** Number of learned weights: all, or those of adapters and value head. */
  readonly trainedCount: number;
  readonly #options: LocalPolicyOptions;
  readonly #state: PolicyState;
  readonly #pool: WorkerPool;
  readonly #gradients: LossGradients;
  /** Updates, scores, saves and loads run one after the other. */
  readonly #queue = new SerialQueue();
  #closed = false;
  /** Estimates values in place of the value head. */
  #critic: LocalPolicy | undefined;
  /** Number of callers that suspend sampling. */
  #holders = 0;

  private constructor(parts: PolicyParts, pool: WorkerPool) {
    const { options, config, weights } = parts;
    this.config = config;
    this.#options = options;
    this.maxSequenceLength = parts.maxSequenceLength;
    const frozen = parts.base === null ? [] : parameterSpecs(config, false);
    this.parameterCount = countWeights(frozen) + weights.size;
    this.trainedCount = weights.size;
    this.#state = new PolicyState(parts);
    this.#pool = pool;
    this.#gradients = new LossGradients(this, options, pool, this.#state.lossScale);
  }

  /**
   * @throws ModelConfigError or SafetensorsError when the model cannot be used; RangeError for options that do not fit
   */
  static async create(options: LocalPolicyOptions): Promise<LocalPolicy> {
    const parts = await prepare(options);
    return new LocalPolicy(parts, await WorkerPool.start(parts));
  }

  /**
   * Lets a second model estimate the values. It learns from the same mini-batches with its own optimizer, is saved in a
   * folder within the policy's, and is closed with it.
   */
  attachCritic(critic: LocalPolicy): void {
    this.#critic = critic;
  }

  get version(): number {
    return this.#state.version;
  }

  get description(): string {
    const where = this.#pool.description;
    const { lora, quantization, blocks } = this.config;
    if (lora === undefined)
      return blocks === undefined ? where : `${where}; weights in the blocks of their file`;
    const storage = blocks === undefined ? quantization : 'blocks';
    const stored = storage === undefined ? '' : `, the others as ${storage}`;
    const learned = `${this.trainedCount} of ${this.parameterCount} weights learned${stored}`;
    return `${where}; ${lora.dora ? 'DoRA' : 'LoRA'} of rank ${lora.rank} on ${lora.modules.join(', ')}, ${learned}`;
  }

  get vocabularySize(): number {
    return this.config.vocabularySize;
  }

  async generate(request: GenerateRequest, watch?: (token: StreamedToken) => void): Promise<Generation> {
    this.#assertOpen();
    return this.#pool.generate(request, watch);
  }

  release(sequenceId: number): void {
    if (!this.#closed) this.#pool.release(sequenceId);
  }

  /**
   * Marks a sequence that may continue later: it keeps its cache while there is room, and does not count when new ones
   * are assigned.
   */
  park(sequenceId: number): void {
    if (!this.#closed) this.#pool.park(sequenceId);
  }

  score(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]> {
    return this.#score(sequences, settings, false);
  }

  /**
   * Scores as a reference policy that shares the base: with the adapters of {@link loadReference}, or without any
   * before that. No values.
   * @throws RangeError where the policy has no adapters
   */
  scoreReference(sequences: readonly ScoreRequest[], settings?: ScoreSettings): Promise<Score[]> {
    this.#assertAdapted();
    return this.#score(sequences, settings, true);
  }

  scoreContinuations(
    requests: readonly ContinuationRequest[],
    settings?: ScoreSettings,
  ): Promise<Float64Array[]> {
    return scoreContinuations(requests, this, sequences => this.#score(sequences, settings, false));
  }

  /** @throws RangeError where there is neither a critic nor a value head */
  async estimate(sequences: readonly ScoreRequest[]): Promise<Float32Array[]> {
    if (this.#critic) return this.#critic.estimate(sequences);
    if (!this.#options.valueHead) throw new RangeError('the policy has no value head to estimate with');
    const scores = await this.#score(sequences, { temperature: 1 }, false);
    return scores.map(({ values }) => values!);
  }

  async #score(
    sequences: readonly ScoreRequest[],
    settings: ScoreSettings = { temperature: 1 },
    reference: boolean,
  ): Promise<Score[]> {
    this.#assertOpen();
    checkTemperature(settings.temperature);
    sequences.forEach((sequence, index) => {
      checkSequence(sequence, this, `sequence ${index} to score`);
    });
    return this.#queue.run(() => this.#pool.score(sequences, settings, reference));
  }

  /**
   * One optimizer step, after one of the critic. With float16 products, a step with a gradient that overflows is
   * skipped: the loss scale is lowered, and `actor/step_skipped` is 1.
   * @throws RangeError for settings or sequences that do not fit; Error when the gradient is not finite. The weights
   * then stay unchanged.
   */
  async update(batch: UpdateBatch, settings: UpdateSettings): Promise<UpdateMetrics> {
    this.#assertLearns();
    if (this.#state.average?.swapped) throw new Error('the average of the weights cannot learn');
    const { optimizer, critic } = settings;
    if (this.#critic && !critic) {
      throw new RangeError('the settings of an update with a critic need its optimizer (`critic`)');
    }
    const values = await this.#critic?.update(batch, { ...settings, optimizer: critic! });
    const gradient = this.#gradients.prepared(batch, settings);
    const metrics = await this.#learning(async () => {
      if (this.#gradients.hasSum) throw new Error('added gradients wait for their step: take it first');
      return gradient((norm, lossScale) => this.#apply(norm, lossScale, optimizer));
    });
    return { ...values, ...metrics };
  }

  /**
   * Adds the gradient of a loss that is a sum over tokens, until {@link step} uses the sum.
   * @returns log p at each token of the loss mask, or of its target where the sequence has targets; 0 elsewhere
   * @throws RangeError for sequences or settings that do not fit: nothing was added. After another error the next step
   * is rejected.
   */
  async addGradient(
    sequences: readonly TrainingSequence[],
    loss: LossSettings,
  ): Promise<readonly Float32Array[]> {
    this.#assertLearns();
    return this.#learning(this.#gradients.preparedSum(sequences, loss));
  }

  /**
   * One optimizer step with the gradients that {@link addGradient} added since the last one, or a gradient of 0 without
   * any. A rejected step discards them too.
   * @returns the gradient's norm before clipping
   * @throws Error when a gradient could not be added or is not finite: the weights then stay unchanged
   */
  async step(optimizer: OptimizerSettings): Promise<number> {
    this.#assertLearns();
    return this.#learning(async () => {
      const norm = await this.#gradients.takeSum();
      await this.#apply(norm, 1, optimizer);
      return norm;
    });
  }

  /** Does the work after earlier tasks, and lets the workers generate again when it ends. */
  #learning<T>(work: () => Promise<T>, weightsReplaced = false): Promise<T> {
    return this.#queue.run(() => work().finally(() => this.#resume(weightsReplaced)));
  }

  /** Discards the gradients that {@link addGradient} added since the last step. */
  async dropGradients(): Promise<void> {
    await this.#queue.run(async () => this.#gradients.dropSum());
  }

  /** Applies the gradient that the workers hold. */
  async #apply(norm: number, lossScale: number, optimizer: OptimizerSettings): Promise<UpdateMetrics> {
    const step = this.#state.step + 1;
    const scale = clipFactor(norm, optimizer.clipNorm) / lossScale;
    await this.#pool.onSlices((worker, slice) => worker.run('apply', slice, step, scale, optimizer));
    this.#state.stepped();
    const { average } = this.#state;
    if (average !== null) {
      await this.#pool.all('download');
      average.follow();
    }
    return { [`${this.#options.critic ? 'critic' : 'actor'}/lr`]: optimizer.learningRate };
  }

  /**
   * @throws RangeError for settings or sequences that do not fit, or where the gradients of all batches do not fit the machine's
   * memory; Error when a gradient is not finite
   */
  async decomposeGradients(
    batches: readonly UpdateBatch[],
    settings: GradientSettings,
  ): Promise<GradientDecomposition> {
    this.#assertLearns();
    const decompose = this.#gradients.preparedDecomposition(batches, settings, this.#state.weights);
    return this.#queue.run(decompose);
  }

  async holdingGeneration<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOpen();
    this.#holders++;
    try {
      await this.#pool.all('hold');
      return await work();
    } finally {
      this.#holders--;
      await this.#resume();
    }
  }

  /** Resets the loss scale, too. */
  async resetOptimizer(): Promise<void> {
    this.#assertOpen();
    await this.#queue.run(async () => this.#state.resetOptimizer());
  }

  /** @param dtype with bfloat16 a policy that loads the weights continues from rounded ones */
  async save(folder: string, dtype?: WeightDtype): Promise<void> {
    await this.#withWeights(() => this.#state.save(folder, dtype));
    await this.#critic?.save(join(folder, CRITIC_FOLDER), dtype);
  }

  /**
   * Averages the weights after every optimizer step from now on, beginning with their present values, or with the
   * average in a folder that {@link save} wrote.
   * @param decay weight of the earlier average in a step, from 0 to below 1
   * @throws Error when the folder holds no average
   */
  async averageWeights(decay: number, folder?: string): Promise<void> {
    this.#assertLearns();
    await this.#withWeights(() => this.#state.averageWeights(decay, folder));
  }

  /**
   * Does the work with the average in place of the weights: it is sampled, scored and saved meanwhile.
   * @throws Error where weights are not averaged
   */
  async withAverage<T>(work: () => Promise<T>): Promise<T> {
    const { average } = this.#state;
    if (average === null) throw new Error('the weights of this policy are not averaged');
    const exchange = () =>
      this.#replacingWeights(async () => {
        await this.#pool.all('download');
        average.swap();
      });
    await exchange();
    return work().finally(exchange);
  }

  /** Writes neither optimizer state nor value head. */
  async publish(folder: string): Promise<void> {
    await this.#withWeights(() => this.#state.publish(folder));
  }

  /** The present model, not a copy: for a policy that begins with it. */
  async weightsNow(): Promise<ModelState> {
    return this.#withWeights(async () => this.#state.model);
  }

  /** A copy of the learned weights of one version, for {@link takeWeights}. */
  async copyWeights(): Promise<{ readonly version: number; readonly flat: Float32Array }> {
    return this.#withWeights(async () => ({ version: this.version, flat: this.#state.weights.flat.slice() }));
  }

  /**
   * Loads weights and optimizer state that {@link save} wrote; without optimizer state the optimizer starts fresh. Open
   * sequences continue under the new weights.
   * @throws RangeError when the folder's model has another shape
   */
  async load(folder: string): Promise<void> {
    await this.#replacingWeights(async () => {
      await assertSameModel(folder, this.config);
      await this.#state.load(folder);
    });
    await this.#critic?.load(join(folder, CRITIC_FOLDER));
  }

  /**
   * Takes the learned weights of a policy of the same shape, such as an older version; open sequences continue under
   * them.
   * @param flat from {@link copyWeights}
   */
  async takeWeights(flat: Float32Array): Promise<void> {
    await this.#replacingWeights(async () => this.#state.take(flat));
  }

  /**
   * Loads the adapters in a folder for the reference policy.
   * @throws RangeError where the policy has no adapters, or others
   */
  async loadReference(folder: string): Promise<void> {
    this.#assertOpen();
    this.#assertAdapted();
    await this.#queue.run(async () => {
      await assertSameModel(folder, this.config);
      await this.#state.loadReference(folder);
    });
  }

  /** Ends the workers; pending calls are rejected. */
  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await Promise.all([this.#pool.close(), this.#critic?.close()]);
  }

  /** Does work with the learned weights and moments in memory. */
  #withWeights<T>(work: () => Promise<T>): Promise<T> {
    this.#assertOpen();
    return this.#queue.run(async () => {
      await this.#pool.all('download');
      return work();
    });
  }

  /** Does work that replaces the weights, while the workers do not generate. */
  #replacingWeights(work: () => Promise<void>): Promise<void> {
    this.#assertOpen();
    return this.#learning(async () => {
      await this.#pool.all('hold');
      await work();
    }, true);
  }

  /** Lets the workers generate again, under the present weights. */
  async #resume(weightsReplaced = false): Promise<void> {
    if (this.#holders > 0 && !weightsReplaced) return;
    await this.#pool.all('resume', this.version, weightsReplaced);
  }

  #assertLearns(): void {
    this.#assertOpen();
    if (this.#options.generationOnly) throw new Error('the policy was opened to generate: it cannot learn');
  }

  #assertAdapted(): void {
    if (this.#state.isAdapted) return;
    throw new RangeError('the policy has no adapters, so that no reference shares its weights');
  }

  #assertOpen(): void {
    if (this.#closed) throw new Error('the policy was closed');
  }
}
