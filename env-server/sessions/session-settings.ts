import type { ObservationFormat } from '../environments/core/environment.ts';
import type { Variant } from './episodes/variant.ts';
import type { ByteAccount } from './limits/budgets.ts';
import type { Recorder } from './storage/recorded-episode.ts';

/** Settings that a session `S` begins with besides its episode. */
export interface SessionSettings<S> {
  readonly id: string;
  /** Grows with every session of the server. */
  readonly serial: number;
  readonly variant: Variant;
  /** Name of the principal it belongs to. */
  readonly owner: string;
  readonly groupId: string | null;
  readonly format: ObservationFormat;
  readonly now: () => number;
  /** Gives a time of the server's clock by the wall clock. */
  wall(time: number): number;
  /** Account of its owner. */
  readonly account: ByteAccount;
  /** Recorder of its operations. */
  readonly recorder?: Recorder<S>;
  /** Time by the wall clock, in milliseconds since the epoch. Absent: now. */
  readonly createdAt?: number;
  readonly ttlMs: number;
  /** Time at which it ends even if busy, in milliseconds of the server's clock. */
  readonly deadline: number;
}
