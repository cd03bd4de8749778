import { setImmediate as othersFirst } from 'node:timers/promises';

/** Longest time in milliseconds that a slice blocks the event loop, provided the work yields. */
const SLICE_MS = 4;

/**
 * Long work in parts: a generator that yields where other work may get a turn on the event loop. An environment measures
 * its parts in work done, a millisecond or less, never by a clock, so that the result is always the same.
 */
export type Sliced<T> = Generator<void, T>;

/** Runs the work without interruption. */
export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}

/** Runs the work in slices, with requests answered in between. */
export async function inSlices<T>(work: Sliced<T>): Promise<T> {
  for (let until = performance.now() + SLICE_MS; ; ) {
    const { done, value } = work.next();
    if (done) return value as T;
    if (performance.now() < until) continue;
    await othersFirst();
    until = performance.now() + SLICE_MS;
  }
}
