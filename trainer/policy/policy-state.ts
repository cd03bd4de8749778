import { join } from 'node:path';
import type { DecoderConfig } from '../models/config.ts';
import { ModelFileError } from '../models/files/model-file.ts';
import type { WeightDtype } from '../models/files/stored-numbers.ts';
import type { ParameterStore } from '../tensor/runtime/parameter-store.ts';
import {
  readOptimizer,
  readTrained,
  type SavedModel,
  saveCheckpoint,
  saveModel,
  saveModelAndHead,
  VALUE_HEAD_FILE,
} from './checkpoint/checkpoint.ts';
import { assertSameModel, isModelFolder, readAdapterWeights } from './checkpoint/model-folder.ts';
import { LossScale } from './learning/loss-scale.ts';
import type { ModelState } from './options.ts';
import type { PolicyParts } from './parts.ts';

/** Changing state of a local policy, read from and written to folders while nothing else uses it. */
export class PolicyState {
  readonly #parts: PolicyParts;
  /** Null where products are float32. */
  readonly lossScale: LossScale | null;
  /** Null where weights are not averaged. */
  average: WeightAverage | null = null;
  /** Grows with every step and load. */
  version = 0;
  /** Number of the optimizer's steps. */
  step = 0;

  constructor(parts: PolicyParts) {
    this.#parts = parts;
    const { precision, lossScale } = parts.options;
    this.lossScale = precision === 'float16' ? new LossScale(lossScale) : null;
  }

  get weights(): ParameterStore {
    return this.#parts.weights;
  }

  /** True if there are adapters, and so a reference that shares the base. */
  get isAdapted(): boolean {
    return this.#parts.reference !== null;
  }

  /** Not a copy. */
  get model(): ModelState {
    const { config, place, base, weights } = this.#parts;
    return { config, folders: place, base, weights };
  }

  /** Notes a step of the optimizer. */
  stepped(): void {
    this.step++;
    this.version++;
  }

  /** Resets the moments, the count of steps and the loss scale. */
  resetOptimizer(): void {
    for (const store of [this.#parts.first, this.#parts.second]) {
      store.flat.fill(0);
      store.touch();
    }
    this.step = 0;
    this.lossScale?.restore(undefined);
  }

  /** @throws Error when the folder holds no average */
  async averageWeights(decay: number, folder: string | undefined): Promise<void> {
    const average = new WeightAverage(this.weights, decay);
    if (folder !== undefined) await average.read(folder, this.#parts.config);
    this.average = average;
  }

  /** Writes everything; the weights must be in memory. */
  async save(folder: string, dtype: WeightDtype | undefined): Promise<void> {
    const { options, config, place, weights, first, second } = this.#parts;
    const base = place?.base ?? null;
    const { loraDropout, files = {} } = options;
    await saveCheckpoint(folder, {
      config,
      base,
      loraDropout,
      weights,
      dtype,
      optimizer: { first, second },
      progress: {
        step: this.step,
        version: this.version,
        ...(this.lossScale ? { lossScale: this.lossScale.state } : {}),
      },
      files,
    });
    if (this.average === null || this.average.swapped) return;
    await this.average.save(folder, { config, base, files });
  }

  /** Writes only the model; the weights must be in memory. */
  async publish(folder: string): Promise<void> {
    const { options, config, place, weights } = this.#parts;
    const { loraDropout, files = {} } = options;
    await saveModel(folder, { config, base: place?.base ?? null, loraDropout, weights, files });
  }

  /**
   * Loads everything from a folder of the same model; without optimizer state the optimizer starts fresh.
   * @throws SafetensorsError, ModelFileError naming what is missing or damaged
   */
  async load(folder: string): Promise<void> {
    const { options, config, weights, first, second } = this.#parts;
    const adapter = config.lora === undefined ? null : folder;
    const isWhole = await readTrained({ base: folder, adapter }, config, weights);
    const progress = options.generationOnly ? null : await readOptimizer(folder, { first, second });
    if (progress && !isWhole) throw new ModelFileError(`${join(folder, VALUE_HEAD_FILE)} is missing`);
    this.step = progress?.step ?? 0;
    this.lossScale?.restore(progress?.lossScale);
    this.version = progress?.version ?? this.version + 1;
    for (const store of [weights, first, second]) store.touch();
  }

  /** Takes learned weights of the same shape; the version grows. */
  take(flat: Float32Array): void {
    const { weights } = this.#parts;
    weights.flat.set(flat);
    weights.touch();
    this.version++;
  }

  /** Loads the adapters in a folder of the same model for the reference, which must exist. */
  async loadReference(folder: string): Promise<void> {
    const reference = this.#parts.reference!;
    await readAdapterWeights(folder, this.#parts.config, reference);
    reference.touch();
  }
}

/** Folder of the average of the weights, as a model, within a policy's folder. */
export const AVERAGE_FOLDER = 'ema';

/**
 * Exponential moving average of the learned weights (Polyak averaging; `torch.optim.swa_utils.get_ema_multi_avg_fn`):
 * after every optimizer step average = decay · average + (1 − decay) · weights. It starts as a copy of the weights.
 */
export class WeightAverage {
  readonly weights: ParameterStore;
  readonly average: ParameterStore;
  readonly #decay: number;
  /** True if the average and the weights are swapped. */
  swapped = false;

  /** @param decay from 0, which keeps only the newest weights, to below 1 */
  constructor(weights: ParameterStore, decay: number) {
    if (!(decay >= 0 && decay < 1)) {
      throw new RangeError(`the decay of averaged weights is ${decay}; it must be from 0 to below 1`);
    }
    this.weights = weights;
    this.average = weights.emptyLike();
    this.average.flat.set(weights.flat);
    this.#decay = decay;
  }

  /**
   * Reads the average from a policy's folder.
   * @throws Error when the folder holds none, RangeError when it belongs to another model
   */
  async read(folder: string, config: DecoderConfig): Promise<void> {
    const place = join(folder, AVERAGE_FOLDER);
    if (!(await isModelFolder(place)))
      throw new Error(`${folder} holds no average of its weights (${place})`);
    await assertSameModel(place, config);
    const adapter = config.lora === undefined ? null : place;
    await readTrained({ base: place, adapter }, config, this.average);
  }

  /** Writes it into a policy's folder. */
  save(folder: string, model: Omit<SavedModel, 'weights'>): Promise<void> {
    return saveModelAndHead(join(folder, AVERAGE_FOLDER), { ...model, weights: this.average });
  }

  /** Adds the weights after a step to the average. */
  follow(): void {
    const [average, weights] = [this.average.flat, this.weights.flat];
    for (let i = 0; i < average.length; i++) average[i] += (1 - this.#decay) * (weights[i] - average[i]);
  }

  /** Exchanges weights and average; a second time undoes it. */
  swap(): void {
    const [average, weights] = [this.average.flat, this.weights.flat];
    for (let i = 0; i < average.length; i++) [average[i], weights[i]] = [weights[i], average[i]];
    this.weights.touch();
    this.swapped = !this.swapped;
  }
}
