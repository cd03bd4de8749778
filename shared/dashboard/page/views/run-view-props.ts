import type { Address } from '../address.ts';
import type { RunStore } from '../data/run-store.ts';

/** What every view of a run is given. */
export interface RunViewProps {
  readonly store: RunStore;
  readonly address: Address;
}
