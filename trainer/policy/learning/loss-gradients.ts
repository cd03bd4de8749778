import { countLossTokens, type LossCounts } from '../../algorithms/losses/aggregation.ts';
import { batchMetrics } from '../../algorithms/losses/batch-metrics.ts';
import { checkLossSettings } from '../../algorithms/losses/check-settings.ts';
import { lossStructure } from '../../algorithms/losses/inputs.ts';
import { finishMetrics } from '../../algorithms/losses/metric-sums.ts';
import { policyLoss } from '../../algorithms/losses/registry.ts';
import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import { LOSS_COMPONENTS, type LossComponent } from '../../algorithms/losses/update-loss.ts';
import type { TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import type { LocalPolicyOptions } from '../options.ts';
import { machineMemory, refuseGradients } from '../parts.ts';
import type { GradientDecomposition, GradientSettings, UpdateBatch, UpdateMetrics } from '../policy.ts';
import type { WorkerPool } from '../workers/worker-pool.ts';
import { summedLoss } from './loss-program.ts';
import type { LossScale } from './loss-scale.ts';
import { checkOneAdvantage, checkSequence, checkTemperature, haveReturns } from './token-masks.ts';

/** Properties of the learning policy. */
type LearningPolicy = Parameters<typeof checkSequence>[1] & { readonly version: number };

/** Uses an accumulated gradient, which still contains `lossScale`. */
export type UseGradient = (norm: number, lossScale: number) => Promise<UpdateMetrics>;

/** The gradient is not finite, so no step is taken. */
class NotFiniteError extends Error {
  constructor(norm: number) {
    super(`the gradient's norm is ${norm}; the step was not taken and the weights are unchanged`);
    this.name = 'NotFiniteError';
  }
}

/** Gradients of batches by a policy's workers. Each method checks at once, and returns a function that computes. */
export class LossGradients {
  readonly #policy: LearningPolicy;
  readonly #options: LocalPolicyOptions;
  readonly #pool: WorkerPool;
  /** Null where products are float32. */
  readonly #lossScale: LossScale | null;
  /** Gradients that were added: whether there are any, and why they cannot be used. */
  #sum: { readonly any: boolean; readonly fault?: Error } = { any: false };

  constructor(
    policy: LearningPolicy,
    options: LocalPolicyOptions,
    pool: WorkerPool,
    lossScale: LossScale | null,
  ) {
    this.#policy = policy;
    this.#options = options;
    this.#pool = pool;
    this.#lossScale = lossScale;
  }

  /**
   * The gradient of a batch. One that overflows in float16 is discarded, and the loss scale is lowered.
   * @throws RangeError for settings or sequences that do not fit; later Error when the gradient is not finite
   */
  prepared(
    { sequences }: UpdateBatch,
    { loss, temperature }: GradientSettings,
  ): (use: UseGradient) => Promise<UpdateMetrics> {
    const counts = this.#checkedCounts(sequences, loss, temperature);
    return async use => {
      const { valueHead, critic = false } = this.#options;
      const value = valueHead && haveReturns(sequences);
      if (critic && !value) {
        throw new RangeError('a critic learns returns, which the training sequences do not have');
      }
      const entropy = !critic && policyLoss(loss.policy).kind === 'ratio';
      const crossEntropy = sequences.some(sequence => sequence.crossEntropyWeights !== undefined);
      const structure = lossStructure(loss, { value, entropy, policy: !critic, crossEntropy });
      const lossScale = this.#lossScale?.scale ?? 1;
      const { version } = this.#policy;
      const task = { sequences, loss, structure, counts, temperature, version, lossScale };
      const role = critic ? 'critic' : 'actor';
      const { metrics: parts } = await this.#pool.addGradient(task);
      const norm = (await this.#pool.reduceGradients()) / lossScale;
      const metrics = { ...finishMetrics(parts), ...batchMetrics(sequences, loss) };
      if (this.#lossScale === null) {
        if (!Number.isFinite(norm)) throw new NotFiniteError(norm);
        return { ...(await use(norm, lossScale)), ...metrics, [`${role}/grad_norm`]: norm };
      }
      const scaled = { ...metrics, [`${role}/loss_scale`]: lossScale };
      if (!Number.isFinite(norm)) {
        this.#lossScale.overflowed();
        return { ...finiteOnly(scaled), [`${role}/step_skipped`]: 1 };
      }
      const used = await use(norm, lossScale);
      this.#lossScale.succeeded();
      return { ...used, ...scaled, [`${role}/grad_norm`]: norm, [`${role}/step_skipped`]: 0 };
    };
  }

  /** True if gradients were added and not taken. */
  get hasSum(): boolean {
    return this.#sum.any;
  }

  /**
   * Adds the gradient of a loss that is a sum over tokens, not a mean; sequences carry the weights of their tokens.
   * @returns log p at each predicted token of each sequence
   * @throws RangeError for sequences or settings that do not fit, or with float16 products. After a later error the sum
   * cannot be taken.
   */
  preparedSum(
    sequences: readonly TrainingSequence[],
    loss: LossSettings,
  ): () => Promise<readonly Float32Array[]> {
    this.#requireFloat32();
    if (sequences.length > 0) this.#checkedCounts(sequences, loss, 1);
    return async () => {
      try {
        const logProbs = await this.#add(sequences, loss);
        this.#sum = { ...this.#sum, any: true };
        return logProbs;
      } catch (error) {
        this.#sum = { any: true, fault: error as Error };
        throw error;
      }
    };
  }

  /**
   * Ends the sum, which the workers hold from then on, and computes its norm; without added gradients it is 0.
   * @throws Error when a gradient could not be added, or the sum is not finite
   */
  async takeSum(): Promise<number> {
    this.#requireFloat32();
    const { any, fault } = this.#sum;
    this.dropSum();
    if (fault) throw new Error(`a gradient of this step could not be added: ${fault.message}`);
    await this.#pool.all('hold');
    if (!any) await this.#add([], DEFAULT_LOSS_SETTINGS);
    const norm = await this.#pool.reduceGradients();
    if (!Number.isFinite(norm)) throw new NotFiniteError(norm);
    return norm;
  }

  /** Discards the gradients that were added. */
  dropSum(): void {
    this.#sum = { any: false };
  }

  async #add(sequences: readonly TrainingSequence[], loss: LossSettings): Promise<readonly Float32Array[]> {
    const { version } = this.#policy;
    const { structure, counts } = summedLoss(sequences, loss);
    const sum = this.#sum.any ? 'more' : 'first';
    const task = { sequences, loss, structure, counts, temperature: 1, version, lossScale: 1, sum } as const;
    return (await this.#pool.addGradient(task)).logProbs;
  }

  /** @throws RangeError */
  #requireFloat32(): void {
    if (this.#lossScale !== null) throw new RangeError('gradients add up in float32 alone, not in float16');
  }

  /**
   * The gradients of the loss's components over several batches.
   * @param weights the learned weights
   * @throws RangeError for settings or sequences that do not fit, or where the gradients of all batches do not fit the
   * machine's memory; later Error when a gradient is not finite
   */
  preparedDecomposition(
    batches: readonly UpdateBatch[],
    { loss, temperature }: GradientSettings,
    weights: ParameterStore,
  ): () => Promise<GradientDecomposition> {
    const counts = batches.map(({ sequences }) => this.#checkedCounts(sequences, loss, temperature));
    const components = LOSS_COMPONENTS.filter(component => isOn(component, loss));
    refuseGradients(batches.length * components.length, weights.size, machineMemory());
    const structure = lossStructure(loss, { value: false, entropy: components.includes('entropy') });
    return async () => {
      const { version } = this.#policy;
      for (let lossScale = this.#lossScale?.scale ?? 1; ; lossScale /= 2) {
        const tasks = batches.map(({ sequences }, i) => {
          return { sequences, loss, structure, counts: counts[i], temperature, version, lossScale };
        });
        const found = await this.#pool.decompose(tasks, components, () => weights.emptyLike().share());
        const products = found.products.map(product => product / lossScale ** 2);
        if (products.every(Number.isFinite)) {
          const gradients = found.losses.flatMap((losses, batch) =>
            components.map(component => ({ batch, component, loss: losses[component] })),
          );
          return { gradients, products };
        }
        if (this.#lossScale === null || lossScale < 1) {
          throw new Error('a gradient of a component of the loss is not finite');
        }
      }
    };
  }

  /**
   * Counts the tokens and sequences of a valid batch.
   * @throws RangeError for another
   */
  #checkedCounts(
    sequences: readonly TrainingSequence[],
    loss: LossSettings,
    temperature: number,
  ): LossCounts {
    checkLossSettings(loss);
    checkTemperature(temperature);
    sequences.forEach((sequence, index) => {
      checkSequence(sequence, this.#policy, `training sequence ${index}`);
    });
    const counts = countLossTokens(sequences);
    if (policyLoss(loss.policy).sequenceLevel) sequences.forEach(checkOneAdvantage);
    if (counts.tokens === 0 && (counts.streams?.crossEntropy?.tokens ?? 0) === 0) {
      throw new RangeError('nothing to train on: no sequence has a token in its loss mask');
    }
    return counts;
  }
}

function isOn(component: LossComponent, { entropyCoefficient, kl }: LossSettings): boolean {
  if (component === 'entropy') return entropyCoefficient > 0;
  return component === 'task' || kl.coefficient > 0;
}

function finiteOnly(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => Number.isFinite(value)));
}
