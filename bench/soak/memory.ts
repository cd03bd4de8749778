import { median } from '../median.ts';

const MB = 1024 * 1024;
/** What memory in use may grow by over the undisturbed time: clients have other sessions open, code is compiled. */
const LIVE_SHARE = 0.1;
const LIVE_BYTES = 12 * MB;
/** What the memory of the processes may grow by from the first half of the time after the floods to the second. */
const RSS_SHARE = 0.05;
const RSS_BYTES = 8 * MB;
/** What a process may have at most after the floods, with all that V8 and the allocator keep for later. */
const MOST_RSS_BYTES = 512 * MB;
/** Looks before the floods, and after them, that are needed to tell. */
export const MIN_SAMPLES = 3;

/** Memory of all processes, looked at when they have just collected garbage. */
export interface MemorySample {
  /** On the heap and outside of it, in use: what a leak would grow. */
  readonly liveBytes: number;
  /** What the system gave them. */
  readonly rssBytes: number;
}

/**
 * Memory over the undisturbed time of a stage. A flood leaves pages with V8 and the allocator that they keep for the
 * next one, so the memory of a process is higher after the first floods than before: in use is what it was. Hence what
 * is in use must be what it was before the floods, and the rest must have settled once they are over.
 */
export interface MemoryReport {
  /** In use: before the floods, and in the second half of the time after them. */
  readonly live: readonly [before: number, after: number];
  /** Of the processes: before the floods, and in the halves of the time after them. */
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
  if (second > MOST_RSS_BYTES * processes) {
    return `the processes have ${inMb(second)}, more than ${inMb(MOST_RSS_BYTES)} each`;
  }
  return undefined;
}

export const memoryText = ({ live, rss }: MemoryReport): string =>
  `in use ${live.map(inMb).join(' → ')}, processes ${rss.map(inMb).join(' → ')}`;

export const inMb = (bytes: number): string => `${(bytes / MB).toFixed(0)} MB`;
