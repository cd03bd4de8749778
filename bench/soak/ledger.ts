import type { ProblemCode } from '../../env-server/problems.ts';

/** What all players of a soak count and know. */
export interface Ledger {
  steps: number;
  retries: number;
  rollbacks: number;
  lost: number;
  verified: number;
  replayed: number;
  readonly problems: Map<ProblemCode, number>;
  /** How often the server, or a part of it, was killed. */
  kills: number;
  /** Whether the server may have forgotten a session opened at this time (of `performance.now`), because it was killed. */
  mayForget(openedAt: number): boolean;
  /** Idle time after which sessions may have expired, in milliseconds. */
  readonly ttlMs: number;
}
