import type { RunSettings } from '../../config/settings.ts';
import type { OptimizerSettings } from '../../policy/policy.ts';

/** Shape of a learning rate over optimizer steps or iterations, all counted from 0. */
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

/** The optimizer of an iteration, counted from 0; a critic's where its highest learning rate is given. */
export function optimizerSettings(
  { optimizer, training }: RunSettings,
  iteration: number,
  peak = optimizer.learning_rate,
): OptimizerSettings {
  return {
    learningRate: learningRateAt(
      {
        peak,
        warmup: optimizer.warmup_iterations,
        total: training.steps,
        decay: optimizer.decay,
        finalShare: optimizer.final_share,
      },
      iteration,
    ),
    beta1: optimizer.beta1,
    beta2: optimizer.beta2,
    epsilon: optimizer.epsilon,
    weightDecay: optimizer.weight_decay,
    clipNorm: optimizer.clip_norm,
  };
}
