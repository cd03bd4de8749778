import type { Address } from '../address.ts';
import type { Points, RunStore } from '../data/run-store.ts';
import { duration, short } from '../format.ts';

/** Horizontal axes, each with the metric that gives its value at a step. */
export const AXES = {
  step: undefined,
  episodes: 'training/episodes',
  tokens: 'training/sampled_tokens',
  time: 'training/seconds',
} as const;
export type Axis = keyof typeof AXES;

export const DEFAULT_SMOOTHING = 0.6;
const MAX_SMOOTHING = 0.99;

/** Choices shared by all charts of a page. */
export interface ChartView {
  readonly axis: Axis;
  /** Weight of the earlier values, from 0 (none) to 0.99. */
  readonly smoothing: number;
  readonly log: boolean;
  /** Visible range of x, in units of the axis; absent for everything. */
  readonly zoom?: readonly [from: number, to: number];
}

/** The view in an address; invalid parts are ignored. */
export function chartViewOf({ x, smooth, log, zoom }: Address['query']): ChartView {
  const weight = smooth === undefined ? DEFAULT_SMOOTHING : Number(smooth);
  const [from, to] = (zoom ?? '').split(':').map(text => (text === '' ? Number.NaN : Number(text)));
  return {
    axis: x !== undefined && Object.hasOwn(AXES, x) ? (x as Axis) : 'step',
    smoothing: weight >= 0 && weight <= MAX_SMOOTHING ? weight : DEFAULT_SMOOTHING,
    log: log === 'yes',
    ...(Number.isFinite(from) && to > from && Number.isFinite(to) ? { zoom: [from, to] as const } : {}),
  };
}

/** Axes for which a run has metrics. */
export function knownAxes(metrics: readonly string[]): Axis[] {
  return (Object.keys(AXES) as Axis[]).filter(
    axis => AXES[axis] === undefined || metrics.includes(AXES[axis]),
  );
}

/** Position of steps on an axis. */
export function positionsOn(axis: Axis, store: Pick<RunStore, 'series'>): (step: number) => number {
  const metric = AXES[axis];
  return metric === undefined ? step => step : interpolated(store.series(metric));
}

/** A function through points that begins at 0 and keeps its last value. */
export function interpolated({ x, y }: Points): (at: number) => number {
  const known = x.map((_, i) => i).filter(i => Number.isFinite(y[i]) && x[i] > 0);
  const [xs, ys] = [
    [0, ...known.map(i => x[i])],
    [0, ...known.map(i => y[i])],
  ];
  return at => {
    let low = 0;
    let high = xs.length - 1;
    if (at >= xs[high]) return ys[high];
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (xs[middle] <= at) low = middle;
      else high = middle;
    }
    return ys[low] + ((ys[high] - ys[low]) * (at - xs[low])) / (xs[high] - xs[low]);
  };
}

/** Exponential moving average without the bias of its start; values that are not numbers are skipped. */
export function smoothed(values: readonly number[], weight: number): number[] {
  let sum = 0;
  let seen = 0;
  return values.map(value => {
    if (!Number.isFinite(value)) return value;
    sum = weight * sum + (1 - weight) * value;
    seen = weight * seen + (1 - weight);
    return sum / seen;
  });
}

/** A position on an axis in words. */
export function positionText(axis: Axis, value: number): string {
  return axis === 'time' ? duration(value) : `${axis} ${short(value)}`;
}

/** One curve of a chart. */
export interface Curve {
  readonly label: string;
  /** Steps. */
  readonly x: readonly number[];
  readonly y: readonly number[];
  /** Color number, from 0. */
  readonly color?: number;
  /** A band between two curves on the same x. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
  /** Position of each step on the axis; by default the steps themselves. */
  readonly at?: (step: number) => number;
}

export interface ChartProps {
  readonly title: string;
  readonly curves: readonly Curve[];
  readonly height?: number;
  /** Fills the height of its panel; not with a legend. */
  readonly fill?: boolean;
  /** Values of y that are always visible. */
  readonly range?: readonly [number, number];
  readonly format?: (value: number) => string;
  /** Stacked and filled curves. */
  readonly stacked?: boolean;
  /** Shows the names of the curves with the values under the pointer. */
  readonly legend?: boolean;
  /** Reference values, each a dashed line with its name. */
  readonly references?: readonly { readonly label: string; readonly value: number }[];
  /** Choices shared by the charts of the page; without them a chart is independent. */
  readonly view?: ChartView;
  /** Draws the curves unsmoothed even where the view smooths others. */
  readonly exact?: boolean;
}
