import { join } from 'node:path';
import type { DecoderConfig } from '../../models/config.ts';
import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';
import { readTrained, type SavedModel, saveModelAndHead } from '../checkpoint/checkpoint.ts';
import { assertSameModel, isModelFolder } from '../checkpoint/model-folder.ts';

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
  #swapped = false;

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

  /** True if the average and the weights are swapped. */
  get swapped(): boolean {
    return this.#swapped;
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
    this.#swapped = !this.#swapped;
  }
}
