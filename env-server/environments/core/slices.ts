import { background, type Lane, now, SLICE_MS, scheduler } from '../../scheduling/fair-scheduler.ts';
import type { MaybePromise } from './maybe-promise.ts';

/**
 * Work that takes long, in parts of a millisecond or less: a generator that yields where others may have their turn on
 * the event loop. Parts are counted in what is done, never by a clock, so that the result is the same either way.
 */
export type Sliced<T> = Generator<undefined, T, undefined>;

/** The result, with nothing in between. */
export function atOnce<T>(parts: Sliced<T>): T {
  for (;;) {
    const part = parts.next();
    if (part.done) return part.value;
  }
}

/**
 * The result: at once where one slice is enough, else later, with others having their turn between slices. The slices
 * count as time of the connection that the work is for: the current one, unless another is given.
 */
export function inScheduledSlices<T>(
  parts: Sliced<T>,
  lane: Lane = scheduler.current ?? background,
): MaybePromise<T> {
  if (scheduler.mayCompute(lane)) {
    const last = slice(parts);
    if (last.done) return last.value;
  }
  return new Promise((resolve, reject) => {
    lane.compute(() => {
      try {
        const last = slice(parts);
        if (last.done) resolve(last.value);
        return last.done === true;
      } catch (error) {
        reject(error);
        return true;
      }
    });
  });
}

/** Carries out parts for the length of a slice. */
function slice<T>(parts: Sliced<T>): IteratorResult<undefined, T> {
  const end = now() + SLICE_MS;
  for (;;) {
    const part = parts.next();
    if (part.done || now() >= end) return part;
  }
}
