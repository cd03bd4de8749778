export interface MonitorSettings {
  /** Name of a validation metric. */
  readonly metric: string;
  /** `max` where more is better. */
  readonly mode: 'max' | 'min';
  /** Validations in a row without an improvement after which the run stops; 0 never. */
  readonly patience: number;
  /** Smallest change that counts as an improvement for `patience`, exclusive. */
  readonly minDelta: number;
  /** The run stops when the metric is at least this good; null: never. */
  readonly target: number | null;
}

/** Plain data, kept in checkpoints. */
export interface MonitorState {
  /** The best value so far and its iteration. */
  readonly best: { readonly step: number; readonly value: number };
  /** Value that the next one has to improve on. */
  readonly toBeat: number;
  /** Validations since that improved. */
  readonly waited: number;
}

export interface MonitorVerdict {
  readonly state: MonitorState;
  /** The value is better than every one before. */
  readonly isBest: boolean;
  readonly stop: 'plateau' | 'target' | null;
}

/**
 * Judges a validation by one metric: whether it is the best so far, and whether the run should stop because the metric
 * reached its target or no longer improves.
 * @param state of the last validation; undefined before the first
 * @throws Error naming the existing metrics where the monitored one is missing
 */
export function monitorMetric(
  settings: MonitorSettings,
  state: MonitorState | undefined,
  step: number,
  metrics: { readonly [name: string]: number },
): MonitorVerdict {
  const { metric, mode, patience, minDelta, target } = settings;
  const value = metrics[metric];
  if (value === undefined) {
    const known = Object.keys(metrics).filter(name => /success|return/.test(name));
    throw new Error(
      `training.monitor.metric: a validation has no ${metric}; it has e.g. ${known.join(', ')}`,
    );
  }
  const gain = (over: number) => (mode === 'max' ? value - over : over - value);
  const isBest = state === undefined || gain(state.best.value) > 0;
  const improved = state === undefined || gain(state.toBeat) > minDelta;
  const next: MonitorState = {
    best: isBest ? { step, value } : state.best,
    toBeat: improved ? value : state.toBeat,
    waited: improved ? 0 : state.waited + 1,
  };
  const reached = target !== null && gain(target) >= 0;
  const stop = reached ? 'target' : patience > 0 && next.waited >= patience ? 'plateau' : null;
  return { state: next, isBest, stop };
}
