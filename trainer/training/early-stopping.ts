import type { WatchState } from './checkpoint.ts';
import type { RunSettings } from './settings.ts';
import { mean } from './statistics.ts';

/** Iterations whose in-group std is the standard for later ones. */
const FIRST_ITERATIONS = 10;

type Rules = RunSettings['training']['early_stopping'];

/** Why a run stops before its time; the type is logged as `early_stopped/<type>`. */
export interface EarlyStop {
  readonly type: 'empty_batches' | 'low_std' | 'low_success';
  readonly reason: string;
}

export interface Verdict {
  readonly watch: WatchState;
  readonly stop?: EarlyStop;
}

/**
 * After an iteration: stops when the filter kept nothing too often in a row, or when the episodes of a group have
 * become all alike.
 * @param groupStd mean in-group std of the returns before filtering; undefined for groups of one
 */
export function watchIteration(
  watch: WatchState,
  rules: Rules,
  keptEpisodes: number,
  groupStd: number | undefined,
): Verdict {
  const emptyBatches = keptEpisodes === 0 ? watch.emptyBatches + 1 : 0;
  let { firstStds, lowStds } = watch;
  if (groupStd !== undefined) {
    if (firstStds.length < FIRST_ITERATIONS) firstStds = [...firstStds, groupStd];
    else lowStds = groupStd < rules.std_share * mean(firstStds) ? lowStds + 1 : 0;
  }
  const next = { ...watch, emptyBatches, firstStds, lowStds };
  if (rules.empty_batches > 0 && emptyBatches >= rules.empty_batches) {
    return {
      watch: next,
      stop: {
        type: 'empty_batches',
        reason: `the filter kept no group in ${emptyBatches} iterations running`,
      },
    };
  }
  if (rules.std_iterations > 0 && lowStds >= rules.std_iterations) {
    const percent = (100 * rules.std_share).toFixed(0);
    return {
      watch: next,
      stop: {
        type: 'low_std',
        reason: `the spread of returns within groups stayed under ${percent} % of its start for ${lowStds} iterations`,
      },
    };
  }
  return { watch: next };
}

/** After a validation: stops when success stays near nothing. */
export function watchValidation(watch: WatchState, rules: Rules, success: number): Verdict {
  const lowValidations = success < rules.success_floor ? watch.lowValidations + 1 : 0;
  const next = { ...watch, lowValidations };
  if (rules.success_validations === 0 || lowValidations < rules.success_validations) return { watch: next };
  const percent = (100 * rules.success_floor).toFixed(0);
  return {
    watch: next,
    stop: {
      type: 'low_success',
      reason: `validation success stayed under ${percent} % ${lowValidations} times running`,
    },
  };
}
