import type { Address } from '../address.ts';
import type { RunStore } from '../data/run-store.ts';

/** Properties of every view of a run. */
export interface RunViewProps {
  readonly store: RunStore;
  readonly address: Address;
}
