import { median } from '../measuring.ts';

const MB = 1024 * 1024;
/** Allowed growth of memory in use over the undisturbed time: clients have other sessions open, code is compiled. */
const LIVE_SHARE = 0.1;
const LIVE_BYTES = 12 * MB;
/** Allowed growth of the processes' memory from the first half of the time after the floods to the second. */
const RSS_SHARE = 0.05;
const RSS_BYTES = 8 * MB;
/** Limit for each process that handles requests after the floods, when V8 has released the unused heap. */
const MAX_RSS_BYTES = 320 * MB;
/** Limit for each process during the floods. */
const MAX_PEAK_BYTES = 768 * MB;
/** Fewest samples before the floods, and after them, for a report. */
export const MIN_SAMPLES = 3;

/** Memory of all processes that handle requests, looked at when they have just collected garbage to save memory. */
export interface MemorySample {
  /** On the heap and outside of it, in use: what a leak would grow. */
  readonly liveBytes: number;
  /** Memory that the system gave them. */
  readonly rssBytes: number;
}

/**
 * Memory over the undisturbed time of a stage. What is in use must be what it was before the floods. The memory of the
 * processes is higher after the first floods than before, as the C library keeps some of it; that must have settled. V8
 * keeps all pages of its heap for the next load, until it has not collected for 100 s or is asked for them, as it is
 * before each look.
 */
export interface MemoryReport {
  /** In use: before the floods, and in the second half of the time after them. */
  readonly live: readonly [before: number, after: number];
  /** Memory of the processes: before the floods, and in the halves of the time after them. */
  readonly rss: readonly [before: number, first: number, second: number];
}

/** The medians of looks in even distances; undefined for too few of them. */
export function memoryReport(
  before: readonly MemorySample[],
  after: readonly MemorySample[],
): MemoryReport | undefined {
  if (before.length < MIN_SAMPLES || after.length < MIN_SAMPLES) return undefined;
  const half = Math.floor(after.length / 2);
  const of = (samples: readonly MemorySample[], key: keyof MemorySample) =>
    median(samples.map(sample => sample[key]));
  const [first, second] = [after.slice(0, half), after.slice(half)];
  return {
    live: [of(before, 'liveBytes'), of(second, 'liveBytes')],
    rss: [of(before, 'rssBytes'), of(first, 'rssBytes'), of(second, 'rssBytes')],
  };
}

/** Says what of the memory is not flat. */
export function memoryFault({ live, rss }: MemoryReport, processes: number): string | undefined {
  const [warm, later] = live;
  if (later - warm > LIVE_BYTES * processes + LIVE_SHARE * warm) {
    return `memory in use grew from ${inMb(warm)} to ${inMb(later)}`;
  }
  const [, first, second] = rss;
  if (second - first > RSS_BYTES * processes + RSS_SHARE * first) {
    return `memory of the processes grew from ${inMb(first)} to ${inMb(second)} after the floods`;
  }
  if (second > MAX_RSS_BYTES * processes) {
    return `the processes have ${inMb(second)}, more than ${inMb(MAX_RSS_BYTES)} each`;
  }
  return undefined;
}

/** Says by how much the floods raised the memory of the processes too far. */
export function peakFault(peakBytes: number, processes: number): string | undefined {
  if (peakBytes <= MAX_PEAK_BYTES * processes) return undefined;
  return `the processes had ${inMb(peakBytes)} during the floods, more than ${inMb(MAX_PEAK_BYTES)} each`;
}

export const memoryText = ({ live, rss }: MemoryReport): string =>
  `in use ${live.map(inMb).join(' → ')}, processes ${rss.map(inMb).join(' → ')}`;

export const inMb = (bytes: number): string => `${(bytes / MB).toFixed(0)} MB`;
