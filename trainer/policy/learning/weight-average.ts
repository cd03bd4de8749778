import type { ParameterStore } from '../../tensor/runtime/parameter-store.ts';

/**
 * Exponential moving average of the learned weights (Polyak averaging; `torch.optim.swa_utils.get_ema_multi_avg_fn`): after every
 * optimizer step average = decay · average + (1 − decay) · weights. It begins as the weights are.
 */
export class WeightAverage {
  readonly weights: ParameterStore;
  readonly average: ParameterStore;
  readonly #decay: number;
  #swapped = false;

  /** @param decay from 0, which is the weights as they are, to below 1 */
  constructor(weights: ParameterStore, decay: number) {
    if (!(decay >= 0 && decay < 1)) {
      throw new RangeError(`the decay of averaged weights is ${decay}; it must be from 0 to below 1`);
    }
    this.weights = weights;
    this.average = weights.emptyLike();
    this.average.flat.set(weights.flat);
    this.#decay = decay;
  }

  /** Whether the average stands where the weights do. */
  get swapped(): boolean {
    return this.#swapped;
  }

  /** Takes the weights of another step in. */
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
