import type { SharedLimits } from '../sessions/limits/admission.ts';
import type { WorkerChannels } from './worker-channels.ts';

/** What makes an app one of several that serve together. */
export interface ClusterMembership {
  readonly channels: WorkerChannels;
  readonly counts: SharedLimits;
  /** Of the database of custom environments, for a server without `--data`. */
  readonly folder: string;
  /** Names the start of the server, the same for all of its processes: digits and small letters. */
  readonly run: string;
  /** How often this process was started again after it ended without being told to. */
  readonly restarts: number;
}
