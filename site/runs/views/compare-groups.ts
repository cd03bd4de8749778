import { counted } from '../../../shared/text.ts';
import { flattened, type SettingValue } from '../../compute/settings-text.ts';
import type { MetricsReply, RunDetail } from '../../server/reader/run-reader.ts';
import type { Curve } from '../charts/chart-view.ts';
import { AXES, type Axis, positionsOn } from '../charts/chart-view.ts';
import type { Points } from '../data/run-store.ts';
import { settingText } from './runs-columns.ts';

/** Settings in which runs of one kind may differ. */
const SEED_KEYS = /^(seed|run\.|rollout\.start_seed$|policy\.workers$)/;
const SEED_SUFFIX = /(?:[-_.]?seed[-_.]?|[-_.]{1,2}|(?<!\d))\d+$/;

export interface Compared {
  readonly detail: RunDetail;
  readonly metrics: MetricsReply;
}

/** Runs that share one curve. */
export interface RunGroupOf {
  readonly label: string;
  readonly members: readonly Compared[];
}

/** Runs that share a curve: those that differ only by seed, none, or those with the same value of a setting. */
export type Grouping = 'seeds' | 'runs' | (string & {});

export function settingsOf({ detail }: Compared): ReadonlyMap<string, SettingValue> {
  return new Map(flattened(detail.config));
}

/** Settings with more than one value among the runs. */
export function differingKeys(runs: readonly Compared[]): string[] {
  const all = runs.map(settingsOf);
  const keys = new Set(all.flatMap(settings => [...settings.keys()]));
  return [...keys].filter(
    key => key !== 'run.name' && new Set(all.map(settings => settings.get(key))).size > 1,
  );
}

export function groupsOf(runs: readonly Compared[], grouping: Grouping): RunGroupOf[] {
  if (grouping === 'runs') return runs.map(run => ({ label: run.detail.row.id, members: [run] }));
  const kinds = Map.groupBy(runs, run => {
    const settings = settingsOf(run);
    return grouping === 'seeds'
      ? JSON.stringify([...settings].filter(([key]) => !SEED_KEYS.test(key)))
      : settingText(settings.get(grouping));
  });
  return [...kinds].map(([kind, members]) => {
    if (grouping !== 'seeds')
      return { label: `${grouping.slice(grouping.lastIndexOf('.') + 1)} ${kind}`, members };
    const { id, run } = members[0].detail.row;
    if (members.length === 1) return { label: id, members };
    return { label: `${run.name.replace(SEED_SUFFIX, '')} (${counted(members.length, 'seed')})`, members };
  });
}

export function pointsOf({ metrics: { series } }: Compared, name: string): Points {
  const points = series[name] ?? { x: [], y: [] };
  return { x: points.x, y: points.y.map(value => value ?? Number.NaN) };
}

/** Metrics that the axes need. */
export const AXIS_METRICS = Object.values(AXES).filter(metric => metric !== undefined);

/** The curve of a group: a run's own, or the mean over its runs with a band of one standard deviation. */
export function curveOf({ label, members }: RunGroupOf, name: string, axis: Axis): Curve {
  const positions = members.map(run => positionsOn(axis, { series: metric => pointsOf(run, metric) }));
  const at = (step: number) =>
    positions.reduce((sum, position) => sum + position(step), 0) / positions.length;
  const [only] = members;
  const points =
    members.length === 1 ? pointsOf(only, name) : meanOf(members.map(run => pointsOf(run, name)));
  return { label, at, ...points };
}

/** Mean over runs at each step that all of them have, with a band of one standard deviation. */
export function meanOf(runs: readonly Points[]) {
  const values = new Map<number, number[]>();
  for (const { x, y } of runs) {
    x.forEach((step, i) => {
      if (!Number.isNaN(y[i])) values.set(step, [...(values.get(step) ?? []), y[i]]);
    });
  }
  const steps = [...values].filter(([, all]) => all.length === runs.length).sort((a, b) => a[0] - b[0]);
  const mean = steps.map(([, all]) => all.reduce((sum, value) => sum + value, 0) / all.length);
  const std = steps.map(([, all], i) =>
    Math.sqrt(all.reduce((sum, value) => sum + (value - mean[i]) ** 2, 0) / (all.length - 1)),
  );
  return {
    x: steps.map(([step]) => step),
    y: mean,
    low: mean.map((value, i) => value - std[i]),
    high: mean.map((value, i) => value + std[i]),
  };
}

/** The last step at which all runs have a metric, with their values. */
export function lastCommon(runs: readonly Compared[], name: string) {
  const all = runs.map(run => {
    const { x, y } = pointsOf(run, name);
    return new Map(x.flatMap((step, i) => (Number.isFinite(y[i]) ? [[step, y[i]] as const] : [])));
  });
  const steps = [...(all[0]?.keys() ?? [])].filter(step => all.every(values => values.has(step)));
  if (steps.length === 0) return undefined;
  const step = Math.max(...steps);
  return { step, values: all.map(values => values.get(step)!) };
}
