import { checkLossSettings } from '../algorithms/losses/check-settings.ts';
import { policyLoss } from '../algorithms/losses/registry.ts';
import { lossSettings } from './derived.ts';
import { settingsAt } from './schedules.ts';
import type { CoefficientSchedule } from './sections/schedules.ts';
import type { SettingConflict } from './sections/schema.ts';
import type { RunSettings } from './settings.ts';

type ScheduleName = keyof RunSettings['schedules'];

/** Schedules that cannot be followed, have no effect, or lead to a value that the loss refuses. */
export function scheduleClashes(settings: RunSettings): SettingConflict[] {
  return (Object.keys(settings.schedules) as ScheduleName[]).flatMap(name => {
    const schedule = settings.schedules[name];
    if (schedule === null) return [];
    const message =
      courseFault(schedule) ?? effectFault(settings, name) ?? valueFault(settings, name, schedule);
    return message === undefined ? [] : [{ key: `schedules.${name}`, message }];
  });
}

/** @returns why a schedule cannot be followed; undefined when it can be */
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

/** @returns why nothing would change with a schedule; undefined where something does */
function effectFault({ loss }: RunSettings, name: ScheduleName): string | undefined {
  const { kind } = policyLoss(loss.policy);
  if (name === 'entropy_coefficient' && kind === 'preference')
    return `has no term in a preference loss: leave it null (loss.policy is ${loss.policy})`;
  return (name === 'clip_low' || name === 'clip_high') && kind !== 'ratio'
    ? `clips a ratio, which ${loss.policy} does not have: leave it null (loss.policy is ${loss.policy})`
    : undefined;
}

/** @returns what the loss says of a value between which the schedule moves, where it takes the settings without schedules */
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

function lossFault(settings: RunSettings): string | undefined {
  try {
    checkLossSettings(lossSettings(settings));
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}
