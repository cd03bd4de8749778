import type { Sliced } from '../../../shared/slices.ts';
import { background, type Lane, now, SLICE_MS, scheduler } from '../../scheduling/fair-scheduler.ts';
import type { MaybePromise } from './maybe-promise.ts';

/**
 * The result: at once where one slice is enough; otherwise later, with other work between slices. The slices count as
 * time of the connection that the work is for: the current one, unless another is given.
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

/** Runs parts for the length of a slice. */
function slice<T>(parts: Sliced<T>): IteratorResult<void, T> {
  const end = now() + SLICE_MS;
  for (;;) {
    const part = parts.next();
    if (part.done || now() >= end) return part;
  }
}
