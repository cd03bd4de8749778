import type { ChartView } from './chart-view.ts';

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
  /** Formats a value. */
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
