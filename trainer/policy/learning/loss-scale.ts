/** Settings of the loss scale. */
export interface LossScaleSettings {
  /** The first scale. A power of two changes no bit of a number that neither under- nor overflows. */
  readonly initial: number;
  /** Steps without an overflow after which the scale doubles. */
  readonly growthInterval: number;
  /** Factor on the scale after an overflow. */
  readonly backOff: number;
}

export const DEFAULT_LOSS_SCALE: LossScaleSettings = { initial: 2 ** 16, growthInterval: 200, backOff: 0.5 };

/** State between steps; in checkpoints, so a resumed run takes the same steps. */
export interface LossScaleState {
  readonly scale: number;
  /** Steps since the scale last changed. */
  readonly steps: number;
}

const GROWTH = 2;
/** Gradients of zero never overflow: without this limit the scale itself eventually would. */
const MAX_SCALE = 2 ** 24;
/** Below this a gradient overflows because of its inputs, not because of the scale. */
const MIN_SCALE = 1;

/**
 * Factor on the loss that keeps its gradients in float16's range. It adapts during the run (Micikevicius et al., 2018,
 * like torch.amp.GradScaler): halved when a gradient overflows, doubled after many finite ones.
 */
export class LossScale {
  readonly #settings: LossScaleSettings;
  #state: LossScaleState;

  /** @throws RangeError naming the setting that is out of range */
  constructor(settings: LossScaleSettings = DEFAULT_LOSS_SCALE) {
    checkLossScale(settings);
    this.#settings = settings;
    this.#state = { scale: settings.initial, steps: 0 };
  }

  get scale(): number {
    return this.#state.scale;
  }

  get state(): LossScaleState {
    return this.#state;
  }

  /** Continues from a checkpoint's state, or from the first scale where it has none. */
  restore(state: LossScaleState | undefined): void {
    this.#state = state ?? { scale: this.#settings.initial, steps: 0 };
  }

  /** Notes that a gradient was finite. */
  succeeded(): void {
    const { scale, steps } = this.#state;
    const grown = steps + 1 >= this.#settings.growthInterval && scale * GROWTH <= MAX_SCALE;
    this.#state = grown ? { scale: scale * GROWTH, steps: 0 } : { scale, steps: steps + 1 };
  }

  /**
   * Notes that a gradient was not finite.
   * @throws Error where a smaller scale would not help
   */
  overflowed(): void {
    const { scale } = this.#state;
    if (scale <= MIN_SCALE) {
      throw new Error(
        `the gradient is not finite in float16 even with the loss scaled by ${scale}; the step was not taken and the weights are unchanged. What flows through the model is beyond float16's range of 65504: use policy.precision float32`,
      );
    }
    this.#state = { scale: Math.max(MIN_SCALE, scale * this.#settings.backOff), steps: 0 };
  }
}

/** @throws RangeError naming the setting that is out of range */
export function checkLossScale({ initial, growthInterval, backOff }: LossScaleSettings): void {
  if (!(initial >= MIN_SCALE && initial <= MAX_SCALE)) {
    throw new RangeError(`lossScale.initial must be from ${MIN_SCALE} to ${MAX_SCALE}, got ${initial}`);
  }
  if (!Number.isInteger(growthInterval) || growthInterval < 1) {
    throw new RangeError(`lossScale.growthInterval must be an integer of at least 1, got ${growthInterval}`);
  }
  if (!(backOff > 0 && backOff < 1)) {
    throw new RangeError(`lossScale.backOff must be above 0 and below 1, got ${backOff}`);
  }
}
