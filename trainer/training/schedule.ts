/** Shape of a learning rate over optimiser steps or iterations, all counted from 0. */
export interface Schedule {
  readonly peak: number;
  /** Units over which the rate rises linearly; the first unit already learns. */
  readonly warmup: number;
  /** Units in all. */
  readonly total: number;
  readonly decay: 'constant' | 'linear' | 'cosine';
  /** Rate after the last unit, as a share of the peak. */
  readonly finalShare: number;
}

/** Learning rate in unit `index`: linear warm-up to the peak, then the decay over what is left. */
export function learningRateAt(schedule: Schedule, index: number): number {
  const { peak, warmup, total, decay, finalShare } = schedule;
  if (index < warmup) return (peak * (index + 1)) / warmup;
  if (decay === 'constant') return peak;
  const progress = Math.min(1, (index - warmup) / Math.max(1, total - warmup));
  const left = decay === 'linear' ? 1 - progress : (1 + Math.cos(Math.PI * progress)) / 2;
  return peak * (finalShare + (1 - finalShare) * left);
}
