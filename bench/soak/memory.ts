import { median } from '../median.ts';

const MB = 1024 * 1024;
/** What memory may grow by over the undisturbed time, once warm. */
const GROWTH_SHARE = 0.25;
const GROWTH_BYTES = 24 * MB;
export const MIN_SAMPLES = 6;

/** The medians of the first and the last third of what was looked at in even distances; undefined for too little. */
export function warmAndLater(samples: readonly number[]): readonly [number, number] | undefined {
  if (samples.length < MIN_SAMPLES) return undefined;
  const third = Math.floor(samples.length / 3);
  return [median(samples.slice(0, third)), median(samples.slice(-third))];
}

/** Says that memory is not flat, where it is not. */
export function grewBy([warm, later]: readonly [number, number]): string | undefined {
  if (later - warm <= GROWTH_BYTES + GROWTH_SHARE * warm) return undefined;
  return `memory grew from ${inMb(warm)} to ${inMb(later)}`;
}

export const inMb = (bytes: number): string => `${(bytes / MB).toFixed(0)} MB`;
