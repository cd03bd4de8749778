import type { CoefficientSchedule } from './sections/schedules.ts';
import type { RunSettings } from './settings.ts';

/** Value of a schedule in an iteration, counted from 1, of a run of this many. */
export function scheduledValue(schedule: CoefficientSchedule, step: number, steps: number): number {
  const { kind, from, to, begin, values } = schedule;
  if (kind === 'steps') return values.findLast(({ from_step }) => from_step <= step)?.value ?? from;
  const end = Math.max(begin, schedule.end ?? steps);
  const progress = step <= begin ? 0 : step >= end ? 1 : (step - begin) / (end - begin);
  const share = kind === 'linear' ? progress : (1 - Math.cos(Math.PI * progress)) / 2;
  return from + share * (to - from);
}

/** Names of the metrics that show scheduled coefficients, as verl has them where it does. */
const METRICS = {
  entropy_coefficient: 'actor/entropy_coeff',
  kl_coefficient: 'actor/kl_coef',
  kl_in_reward_coefficient: 'critic/kl_coef',
  clip_low: 'actor/clip_ratio_low',
  clip_high: 'actor/clip_ratio_high',
} as const;

/** The settings of an iteration, counted from 1, with what its schedules say in their places. */
export function settingsAt(
  settings: RunSettings,
  step: number,
): { readonly settings: RunSettings; readonly metrics: { readonly [name: string]: number } } {
  const { schedules, training, loss, algorithm } = settings;
  const metrics: { [name: string]: number } = {};
  const at = (name: keyof typeof METRICS, fixed: number) => {
    const schedule = schedules[name];
    if (schedule === null) return fixed;
    const value = scheduledValue(schedule, step, training.steps);
    metrics[METRICS[name]] = value;
    return value;
  };
  const scheduled: RunSettings = {
    ...settings,
    loss: {
      ...loss,
      entropy_coefficient: at('entropy_coefficient', loss.entropy_coefficient),
      clip_low: at('clip_low', loss.clip_low),
      clip_high: at('clip_high', loss.clip_high),
      kl: { ...loss.kl, coefficient: at('kl_coefficient', loss.kl.coefficient) },
    },
    algorithm: {
      ...algorithm,
      kl_in_reward: {
        ...algorithm.kl_in_reward,
        coefficient: at('kl_in_reward_coefficient', algorithm.kl_in_reward.coefficient),
      },
    },
  };
  return Object.keys(metrics).length === 0 ? { settings, metrics } : { settings: scheduled, metrics };
}
