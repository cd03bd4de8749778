import { setImmediate as othersFirst } from 'node:timers/promises';

/** Longest time in milliseconds that a slice blocks the event loop, provided the work yields. */
const SLICE_MS = 4;

/** Work that yields wherever it may be interrupted. */
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
