import { setImmediate as othersFirst } from 'node:timers/promises';

/** Longest that a slice delays everything else, as far as the work yields. */
const SLICE_MS = 4;

/** Work that yields wherever it may be interrupted. */
export type Sliced<T> = Generator<void, T>;

/** Does the work at once. */
export function atOnce<T>(work: Sliced<T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done) return value as T;
  }
}

/** Does the work in slices, between which requests are answered. */
export async function inSlices<T>(work: Sliced<T>): Promise<T> {
  for (let until = performance.now() + SLICE_MS; ; ) {
    const { done, value } = work.next();
    if (done) return value as T;
    if (performance.now() < until) continue;
    await othersFirst();
    until = performance.now() + SLICE_MS;
  }
}
