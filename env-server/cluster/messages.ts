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

/** What sessions take in memory: all of them, and those of the clients for whom it has changed since the last report. */
export interface ByteReport {
  readonly all: number;
  readonly byClient: readonly (readonly [owner: string, bytes: number])[];
}

/** From the supervisor to a worker. */
export type ToWorker =
  | { readonly kind: 'start'; readonly start: WorkerStart }
  /** With the connection itself. */
  | { readonly kind: 'connection'; readonly number: number }
  | { readonly kind: 'stop'; readonly reason: string }
  | { readonly kind: 'admitted'; readonly number: number; readonly refusal?: Refusal }
  /** What sessions take in the other processes. */
  | ({ readonly kind: 'bytes' } & ByteReport);

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
    }
  /** What its sessions take. */
  | ({ readonly kind: 'bytes' } & ByteReport);
