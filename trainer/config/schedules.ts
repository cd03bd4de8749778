import { checkLossSettings } from '../algorithms/losses/check-settings.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import { lossSettings } from './derived.ts';
import type { CoefficientSchedule } from './sections/algorithm.ts';
import { faultOf, type Rules } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

/** Value of a schedule in an iteration, counted from 1, of a run with this many. */
export function scheduledValue(schedule: CoefficientSchedule, step: number, steps: number): number {
  const { kind, from, to, begin, values } = schedule;
  if (kind === 'steps') return values.findLast(({ from_step }) => from_step <= step)?.value ?? from;
  const end = Math.max(begin, schedule.end ?? steps);
  const progress = step <= begin ? 0 : step >= end ? 1 : (step - begin) / (end - begin);
  const share = kind === 'linear' ? progress : (1 - Math.cos(Math.PI * progress)) / 2;
  return from + share * (to - from);
}

/** Metric names of scheduled coefficients; verl's where verl has them. */
const METRICS = {
  entropy_coefficient: 'actor/entropy_coeff',
  kl_coefficient: 'actor/kl_coef',
  kl_in_reward_coefficient: 'critic/kl_coef',
  clip_low: 'actor/clip_ratio_low',
  clip_high: 'actor/clip_ratio_high',
} as const;

/** The settings of an iteration, counted from 1, with scheduled values filled in. */
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

type ScheduleName = keyof RunSettings['schedules'];

/** Schedules that cannot be followed, have no effect, or reach a value that the loss rejects. */
export function scheduleClashes(settings: RunSettings): Rules {
  const schedules = Object.entries(settings.schedules) as [ScheduleName, CoefficientSchedule | null][];
  return Object.fromEntries(
    schedules.map(([name, schedule]) => [
      `schedules.${name}`,
      schedule &&
        (courseFault(schedule) ?? effectFault(settings, name) ?? valueFault(settings, name, schedule)),
    ]),
  );
}

/** @returns the reason why a schedule cannot be followed; undefined when it can */
function courseFault({ kind, begin, end, values }: CoefficientSchedule): string | undefined {
  if (kind === 'steps') {
    if (values.length === 0)
      return 'is `steps` without `values`: name at least one, e.g. [{from_step: 100, value: 0}]';
    const late = values.findIndex(({ from_step }, i) => i > 0 && from_step <= values[i - 1].from_step);
    return late === -1
      ? undefined
      : `value ${late} begins at step ${values[late].from_step}, not after the one before it`;
  }
  if (values.length > 0)
    return `has \`values\`, which only \`steps\` takes: choose kind: steps, or leave them out`;
  return end !== null && end < begin ? `ends at step ${end}, before it begins at ${begin}` : undefined;
}

/** @returns the reason why a schedule would change nothing; undefined where it changes something */
function effectFault({ loss }: RunSettings, name: ScheduleName): string | undefined {
  const { kind } = policyLoss(loss.policy);
  if (name === 'entropy_coefficient' && kind === 'preference')
    return `has no term in a preference loss: leave it null (loss.policy is ${loss.policy})`;
  return (name === 'clip_low' || name === 'clip_high') && kind !== 'ratio'
    ? `clips a ratio, which ${loss.policy} does not have: leave it null (loss.policy is ${loss.policy})`
    : undefined;
}

/** @returns the loss's complaint about a value on the schedule, where it accepts the settings without schedules */
function valueFault(
  settings: RunSettings,
  name: ScheduleName,
  schedule: CoefficientSchedule,
): string | undefined {
  if (lossFault(settings) !== undefined) return undefined;
  const { schedules } = settings;
  const off = Object.fromEntries(Object.keys(schedules).map(key => [key, null])) as typeof schedules;
  const staying = (from: number): CoefficientSchedule => ({ ...schedule, kind: 'steps', from, values: [] });
  for (const value of turningValues(schedule)) {
    const alone = { ...settings, schedules: { ...off, [name]: staying(value) } };
    const fault = lossFault(settingsAt(alone, 1).settings);
    if (fault !== undefined) return `takes a value that is refused: ${fault}`;
  }
  return undefined;
}

/** The values that a schedule holds or turns at; all others lie between two of them. */
function turningValues({ kind, from, to, values }: CoefficientSchedule): number[] {
  if (kind !== 'steps') return [from, to];
  const first = values[0].from_step > 1 ? [from] : [];
  return [...first, ...values.map(({ value }) => value)];
}

const lossFault = (settings: RunSettings): string | undefined =>
  faultOf(() => checkLossSettings(lossSettings(settings)));
