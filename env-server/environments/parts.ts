import { setImmediate as othersFirst } from 'node:timers/promises';

/**
 * Work that takes long, in parts of some milliseconds: a generator that yields where others may have their turn on the
 * event loop. Parts are counted in what is done, never by a clock, so that the result is the same either way.
 */
export type Parts<T> = Generator<undefined, T, undefined>;

/** The result, with nothing in between. */
export function atOnce<T>(parts: Parts<T>): T {
  for (;;) {
    const part = parts.next();
    if (part.done) return part.value;
  }
}

/** The result, with others having their turn between the parts. */
export async function inTurns<T>(parts: Parts<T>): Promise<T> {
  for (;;) {
    const part = parts.next();
    if (part.done) return part.value;
    await othersFirst();
  }
}
