/** Points of one metric in file order: step and value; NaN for a value that is not a number. */
export interface SeriesPoints {
  readonly x: readonly number[];
  readonly y: readonly number[];
}

/** A growing metric. It is thinned out by keeping the minimum and maximum of each stretch, so no peak is lost. */
export class Series {
  x: number[] = [];
  y: number[] = [];
  readonly #most: number;

  /** @param most points to keep; at twice as many they are thinned out again */
  constructor(most: number, { x, y }: SeriesPoints = { x: [], y: [] }) {
    this.#most = most;
    this.x = [...x];
    this.y = [...y];
  }

  push(x: number, y: number): void {
    this.x.push(x);
    this.y.push(y);
    if (this.x.length < 2 * this.#most) return;
    ({ x: this.x, y: this.y } = extremes(this, 4));
  }
}

/** About this many points: the minimum and maximum of every stretch. */
export function downsampled(points: SeriesPoints, most: number): SeriesPoints {
  return points.x.length <= most ? points : extremes(points, Math.ceil((2 * points.x.length) / most));
}

/** The minimum and maximum of each stretch of this many points, in order; NaN only where there is nothing else. */
function extremes({ x, y }: SeriesPoints, size: number): { x: number[]; y: number[] } {
  const kept: { x: number[]; y: number[] } = { x: [], y: [] };
  for (let start = 0; start < x.length; start += size) {
    const end = Math.min(start + size, x.length);
    let low = start;
    let high = start;
    for (let i = start + 1; i < end; i++) {
      if (y[i] < y[low] || Number.isNaN(y[low])) low = i;
      if (y[i] > y[high] || Number.isNaN(y[high])) high = i;
    }
    if (low === high) high = end - 1;
    for (const i of low === high ? [low] : [Math.min(low, high), Math.max(low, high)]) {
      kept.x.push(x[i]);
      kept.y.push(y[i]);
    }
  }
  return kept;
}
