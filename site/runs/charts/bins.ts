/** A bar of a histogram: the values from `low` to `high`, inclusive. */
export interface Bin {
  readonly low: number;
  readonly high: number;
  readonly count: number;
}

/** Up to this many different values get a bar each. */
const MAX_VALUES = 8;
const BINS = 12;
/** Values that differ only in later digits come from another order of addition. */
const DIGITS = 9;

/** Bars over values: one for each different value where there are few, otherwise of equal width; none is empty. */
export function binsOf(values: readonly number[]): Bin[] {
  const known = values.filter(Number.isFinite);
  const low = Math.min(...known);
  const width = (Math.max(...known) - low) / BINS;
  const same = (value: number) => Number(value.toPrecision(DIGITS));
  const few = new Set(known.map(same)).size <= MAX_VALUES;
  const bins = new Map<number, Bin>();
  for (const value of known) {
    const place = few ? same(value) : Math.min(BINS - 1, Math.floor((value - low) / width));
    const bin = bins.get(place) ?? { low: value, high: value, count: 0 };
    bins.set(place, {
      low: Math.min(bin.low, value),
      high: Math.max(bin.high, value),
      count: bin.count + 1,
    });
  }
  return [...bins.values()].sort((a, b) => a.low - b.low);
}
