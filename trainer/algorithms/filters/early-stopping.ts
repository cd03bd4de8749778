export interface EarlyStoppingSettings {
  /** Updates in a row without a kept group that stop the run; 0 never. */
  readonly emptyBatches: number;
  /** The run stops when the in-group std stays under this share of its mean over the first ten steps … */
  readonly stdShare: number;
  /** … for this many steps in a row; 0 never. */
  readonly stdSteps: number;
  /** The run stops when the best tag's validation success stays under this, and the return does not rise … */
  readonly successFloor: number;
  /** … for this many validations in a row; 0 never. */
  readonly successValidations: number;
}

export const DEFAULT_EARLY_STOPPING: EarlyStoppingSettings = {
  emptyBatches: 5,
  stdShare: 0.1,
  stdSteps: 10,
  successFloor: 0.01,
  successValidations: 5,
};

/** Number of first steps, with their mean in-group std as the baseline. */
const BASELINE_STEPS = 10;

/** Why a run stopped; logged as `early_stopped/<type>` = 1. */
export type EarlyStopType = 'empty_batches' | 'reward_std' | 'low_success';

/** Plain data, kept in checkpoints. */
export interface EarlyStoppingState {
  readonly emptyBatches: number;
  /** In-group std of the first steps, up to ten. */
  readonly baseline: readonly number[];
  readonly lowStds: number;
  readonly lowSuccesses: number;
  /** Highest mean return of a validation. */
  readonly bestReturn?: number;
}

const FRESH: EarlyStoppingState = { emptyBatches: 0, baseline: [], lowStds: 0, lowSuccesses: 0 };

/**
 * Detects runs that can no longer learn: the filter keeps nothing, all groups end alike, or validation never succeeds.
 * Source: RAGEN V2 `agent_trainer.py`, which stops runs without success even while their return rises.
 */
export class EarlyStopping {
  readonly #settings: EarlyStoppingSettings;
  #state: EarlyStoppingState;

  constructor(settings: EarlyStoppingSettings, state: EarlyStoppingState = FRESH) {
    this.#settings = settings;
    this.#state = state;
  }

  get state(): EarlyStoppingState {
    return this.#state;
  }

  /** After a collection; `inGroupStd` is the mean over all groups, before filtering. */
  afterCollection(keptGroups: number, inGroupStd: number): EarlyStopType | null {
    const { emptyBatches, stdShare, stdSteps } = this.#settings;
    const { baseline } = this.#state;
    const empty = keptGroups === 0 ? this.#state.emptyBatches + 1 : 0;
    const measured = baseline.length === BASELINE_STEPS;
    const mean = baseline.reduce((sum, std) => sum + std, 0) / baseline.length;
    const lowStds = measured && inGroupStd < stdShare * mean ? this.#state.lowStds + 1 : 0;
    this.#state = {
      ...this.#state,
      emptyBatches: empty,
      baseline: measured ? baseline : [...baseline, inGroupStd],
      lowStds,
    };
    if (reached(empty, emptyBatches)) return 'empty_batches';
    return reached(lowStds, stdSteps) ? 'reward_std' : null;
  }

  /**
   * After a validation, with the success of each tag. A return above those of all earlier validations is progress, too:
   * not every environment has successes.
   */
  afterValidation(success: readonly number[], meanReturn: number): EarlyStopType | null {
    const { successFloor, successValidations } = this.#settings;
    const { bestReturn = Number.POSITIVE_INFINITY } = this.#state;
    const low = success.length > 0 && Math.max(...success) < successFloor && !(meanReturn > bestReturn);
    const lowSuccesses = low ? this.#state.lowSuccesses + 1 : 0;
    const best = Math.max(meanReturn, this.#state.bestReturn ?? meanReturn);
    this.#state = { ...this.#state, lowSuccesses, bestReturn: best };
    return reached(lowSuccesses, successValidations) ? 'low_success' : null;
  }
}

function reached(count: number, limit: number): boolean {
  return limit > 0 && count >= limit;
}
