import type { ProblemCode } from '../../env-server/problems.ts';

/** Counters and state shared by all players of a soak. */
export interface SoakCounters {
  steps: number;
  retries: number;
  /** Sessions that were gone because nobody had used them for long. */
  expired: number;
  verified: number;
  replayed: number;
  readonly problems: Map<ProblemCode, number>;
  /** Number of times the server, or a part of it, was killed. */
  kills: number;
  /** Idle time after which sessions may have expired, in milliseconds. */
  readonly ttlMs: number;
}
