import type { Json, JsonObject } from '../../../shared/json.ts';
import type { ObservationFormat } from '../../environments/core/environment.ts';
import type { PartRow } from '../../persistence/session-rows.ts';
import type { WrapperChoice } from '../../wrappers/wrap.ts';
import type { EpisodeRestart, EpisodeState } from '../episodes/episode.ts';

/** A reply for a repeated request. */
export interface StoredReply {
  /** Order of the replies of a session or client. */
  readonly number: number;
  readonly key: string;
  readonly operation: string;
  /** Request under the key, as `ReplyMemory` compares it. */
  readonly asked: string;
  readonly reply: Json;
}

/** History of a session besides its episode. */
export interface SessionHistory {
  /** Number of episodes begun, including restored ones. */
  readonly episodes: number;
  readonly snapshotsTaken: number;
  readonly snapshots: readonly (readonly [snapshotId: string, episode: EpisodeState])[];
  readonly replies: readonly StoredReply[];
  /** Hashes of the keys of dropped replies. */
  readonly droppedKeys: readonly Uint32Array[];
  /** True if it may be behind what its client saw last. */
  readonly rolledBack: boolean;
  /** Number of journal records that it includes. */
  readonly recorded: number;
}

/** Fields fixed for the life of a session. Milliseconds: `createdAt` by the wall clock, `deadline` by the server's. */
export interface StoredSettings {
  readonly id: string;
  /** Grows with every session of the server. */
  readonly serial: number;
  /** Name of the owning principal. */
  readonly owner: string;
  readonly groupId: string | null;
  readonly envId: string;
  readonly config: JsonObject;
  readonly wrappers: readonly WrapperChoice[];
  readonly format: ObservationFormat;
  readonly createdAt: number;
  readonly ttlMs: number;
  readonly deadline: number;
}

/** A session as read from the store, complete enough to continue in another process. */
export interface StoredSession extends StoredSettings {
  readonly episode: EpisodeState;
  readonly past: SessionHistory;
}

/** The number of a chunk of actions within its session, and how many of its actions. */
export type StoredPosition = readonly [chunk: number, count: number];

/** An episode in stored form; its actions are stored separately, once. */
export interface StoredEpisode extends Omit<EpisodeState, 'restart' | 'log' | 'bytes'> {
  readonly restart: EpisodeRestart | null;
  readonly log: StoredPosition | null;
}

/** The document of a session: everything that changes with every step, and which of its parts belong to it. */
export interface StoredHead {
  readonly episode: StoredEpisode;
  readonly episodes: number;
  readonly snapshotsTaken: number;
  readonly rolledBack: boolean;
  /** Number of journal records that the document covers; absent: none. */
  readonly recorded?: number;
  /** Parts of each kind with a smaller number belong to it; later ones come from an unfinished write. */
  readonly ends: { readonly [kind in PartRow['kind']]: number };
}

/** Some actions of a chunk. */
export interface ActionsPart {
  readonly chunk: number;
  /** Position of the actions before the chunk. */
  readonly before: StoredPosition | null;
  readonly actions: readonly Json[];
}

export interface SnapshotPart {
  readonly id: string;
  readonly episode: StoredEpisode;
}
