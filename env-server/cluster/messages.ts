import type { Settings } from '../config/settings.ts';
import type { Refusal } from '../sessions/limits/admission.ts';
import type { WorkerPlacement } from '../sessions/placement.ts';

/** What a worker is started with. */
export interface WorkerStart {
  readonly settings: Settings;
  readonly placement: WorkerPlacement;
  /** Where the workers' sockets are, and the database of a server without `--data`. */
  readonly folder: string;
  /** Names this start of the server in its journal. */
  readonly run: string;
  /** How often the worker in this place was started again after it ended without being told to. */
  readonly restarts: number;
}

/** From the supervisor to a worker. */
export type ToWorker =
  | { readonly kind: 'start'; readonly start: WorkerStart }
  /** With the connection itself. */
  | { readonly kind: 'connection'; readonly number: number }
  | { readonly kind: 'stop'; readonly reason: string }
  | { readonly kind: 'admitted'; readonly number: number; readonly refusal?: Refusal };

/** From a worker to the supervisor. */
export type ToSupervisor =
  /** Its event loop turns. */
  | { readonly kind: 'alive' }
  /** Takes connections. */
  | { readonly kind: 'ready' }
  | { readonly kind: 'taken'; readonly number: number }
  | {
      readonly kind: 'admit';
      readonly number: number;
      readonly owner: string;
      readonly envId: string;
      readonly count: number;
    }
  | {
      readonly kind: 'changes';
      readonly changes: readonly (readonly [owner: string, envId: string, change: number])[];
    };
