import type { CommonCounts } from '../sessions/admission.ts';
import type { Mesh } from './mesh.ts';

/** What makes an app one of several that serve together. */
export interface Membership {
  readonly mesh: Mesh;
  readonly counts: CommonCounts;
  /** Of the database of custom environments, for a server without `--data`. */
  readonly folder: string;
  /** Sessions are kept in the folder of `--data`, whose lock the supervisor holds. */
  readonly keeps: boolean;
  /** How often this process was started again after it ended without being told to. */
  readonly restarts: number;
}
