import type { Json, JsonObject } from '../../shared/json.ts';
import type { ObservationFormat } from '../environments/environment.ts';
import type { WrapperChoice } from '../wrappers/wrap.ts';
import type { EpisodeState } from './episode.ts';

/** A reply that a repeated request gets. */
export interface StoredReply {
  readonly key: string;
  readonly operation: string;
  /** What was asked, as `ReplyMemory` compares it. */
  readonly asked: string;
  readonly reply: Json;
}

/** What a session is besides its episode: what it remembers. */
export interface SessionPast {
  /** Episodes begun, restored ones included. */
  readonly episodes: number;
  readonly snapshotsTaken: number;
  readonly snapshots: readonly (readonly [snapshotId: string, episode: EpisodeState])[];
  readonly replies: readonly StoredReply[];
  /** It may stand before what its client saw last. */
  readonly rolledBack: boolean;
}

/** A session as plain data: from it the same session can be made again in another process. Times in milliseconds since the epoch. */
export interface StoredSession {
  readonly id: string;
  readonly serial: number;
  readonly owner: string;
  readonly groupId: string | null;
  readonly envId: string;
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly format: ObservationFormat;
  readonly createdAt: number;
  readonly ttlMs: number;
  readonly deadline: number;
  readonly episode: EpisodeState;
  readonly past: SessionPast;
}
