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
  /** Position of each step on the axis; the steps themselves where it is absent. */
  readonly at?: (step: number) => number;
}

export interface ChartProps {
  readonly title: string;
  readonly curves: readonly Curve[];
  readonly height?: number;
  /** Takes more height where its panel has it; not with a legend. */
  readonly fill?: boolean;
  /** Values of y that are always in view. */
  readonly range?: readonly [number, number];
  /** Formats a value. */
  readonly format?: (value: number) => string;
  /** Curves one on top of the other, filled. */
  readonly stacked?: boolean;
  /** Shows the names of the curves with the values under the pointer. */
  readonly legend?: boolean;
  /** Values to hold the curves against, each a dashed line with its name. */
  readonly references?: readonly { readonly label: string; readonly value: number }[];
  /** Choices that the charts of the page share; without them a chart is alone. */
  readonly view?: ChartView;
  /** Draws the curves as they are although the view smooths others. */
  readonly exact?: boolean;
}
