import type { RowWrite } from '../persistence/session-rows.ts';

/** Milliseconds for which changes are gathered, and their characters, before they are written. */
const SLICE_MS = 4;
const SLICE_LENGTH = 512 * 1024;

/** A change of the database, or a function to be called when the changes before it are written. */
export type CheckpointChange = RowWrite | (() => void);

/** Changes of one transaction, and what to call when it has succeeded. */
export interface Slice {
  readonly changes: readonly RowWrite[];
  readonly written: readonly (() => void)[];
}

/** Gathers changes, in their order, to transactions that are small and were soon gathered. */
export function* slicesOf(all: Iterable<CheckpointChange>): Generator<Slice> {
  let changes: RowWrite[] = [];
  let written: (() => void)[] = [];
  let length = 0;
  let end = performance.now() + SLICE_MS;
  for (const change of all) {
    if (typeof change === 'function') {
      written.push(change);
      continue;
    }
    changes.push(change);
    for (const value of Object.values(change[1])) if (typeof value === 'string') length += value.length;
    if (length < SLICE_LENGTH && performance.now() < end) continue;
    yield { changes, written };
    [changes, written, length] = [[], [], 0];
    end = performance.now() + SLICE_MS;
  }
  if (changes.length + written.length > 0) yield { changes, written };
}
