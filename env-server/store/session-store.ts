import type { Json } from '../../shared/json.ts';
import type { OpenBody, RECORD_KINDS } from '../persistence/journal/records.ts';
import type { PartRow } from '../persistence/session-rows.ts';

/** Letters of the entries of a session: the record kinds, `T` for a take and `C` for a checkpoint. */
export type EntryKind = (typeof RECORD_KINDS)[keyof typeof RECORD_KINDS] | 'T' | 'C';

/** Outcome of a write: `fenced` when another server writes the session now, `gone` when the session ended. */
export type Outcome = 'kept' | 'fenced' | 'gone';

export interface NewSession {
  readonly id: string;
  readonly serial: number;
  readonly settings: Json;
  readonly edition: string;
  readonly groupId: string | null;
  /** True if only this server can play it. */
  readonly pinned: boolean;
  readonly ttlMs: number;
  /** JSON of the body of its first record. */
  readonly record: string;
}

/** Limits on open sessions: in total, of one client, of one environment. */
export type OpenLimits = readonly [all: number, client: number, environment: number];

/** A record, or a checkpoint with the session's head as its body, which is JSON. */
export interface StoredEntry {
  readonly epoch: number;
  readonly n: number;
  readonly kind: EntryKind;
  readonly body: string;
}

/** Everything the store has of a session. */
export interface StoredContent {
  readonly epoch: number;
  readonly owner: string;
  /** JSON of the settings; undefined where only the first record has them. */
  readonly settings: string | undefined;
  /** Definition of the environment that it plays. */
  readonly edition: string | undefined;
  /** True if records that its clients have seen may be missing. */
  readonly isBehind: boolean;
  /** Parts of each kind in the order of their numbers. */
  readonly parts: readonly PartRow[];
  /** Oldest first. */
  readonly entries: readonly StoredEntry[];
  /** First record of the session that has the same beginning, as its own first record says. */
  readonly like?: OpenBody;
}

export interface Tombstone {
  readonly owner: string;
  readonly ending: 'session_expired' | 'session_closed' | 'session_lost';
  readonly reason?: string | null;
  /** Milliseconds of the server's clock; absent where the store uses its own. */
  readonly forgetAt?: number;
}

export type Taken =
  | { readonly state: 'load'; readonly content: StoredContent }
  | { readonly state: 'same'; readonly epoch: number }
  | { readonly state: 'elsewhere' }
  | { readonly state: 'ended'; readonly tombstone: Tombstone | undefined };

export interface StoredReplyRecord {
  readonly operation: string;
  readonly asked: string;
  /** Absent between opening sessions and keeping the reply; the server may have ended there. */
  readonly reply?: Json;
  /** Ids of the sessions that the request opened. */
  readonly opened?: readonly string[];
}

/** A request under a key, as kept with the sessions that it opens. */
export interface RequestClaim {
  readonly key: string;
  readonly operation: string;
  readonly asked: string;
  /** Milliseconds for which it is kept. */
  readonly ms: number;
}

/**
 * The reason why sessions were not opened: a limit, by its index in `limits`, or an earlier request under the same key.
 */
export type OpenRefusal =
  | { readonly limit: number; readonly open: number }
  | { readonly claimed: StoredReplyRecord };

/** The newest record of a session that its server knows. */
export interface RecordPosition {
  readonly epoch: number;
  readonly n: number;
}

/** The same for a session that ends; `hasCheckpoint` is true if the store may have a checkpoint of it. */
export interface EndPosition extends RecordPosition {
  readonly hasCheckpoint: boolean;
}

/** A session at a checkpoint. */
export interface StoredChange {
  readonly owner: string;
  readonly edition: string;
  /** JSON of the settings; null where the store has them from an earlier checkpoint. */
  readonly settings: string | null;
  readonly head: Json;
  /** New parts, which become valid with the head. Reading them throws the errors of `JSON.stringify`. */
  readonly parts: Iterable<PartRow>;
  /** Obsolete parts. */
  readonly remove: readonly Omit<PartRow, 'data'>[];
}

/** The session cannot be written as text. */
export class NotStorable extends Error {
  override readonly name = 'NotStorable';
}

/**
 * Stores sessions beyond their server: records of operations, and checkpoints that make earlier records obsolete. There
 * are two implementations: SQLite in a folder, for one server, and Valkey, which several servers share.
 */
export interface SessionStore {
  /** True if several servers write to it; one that ends leaves its sessions to the others. */
  readonly isShared: boolean;
  /**
   * Opens sessions of one client in one environment: all or none.
   * @param limits checked where several servers open sessions; a single server has checked its own
   * @returns the reason why they are not open; undefined where they are
   */
  open(
    owner: string,
    environment: string,
    limits: OpenLimits,
    sessions: readonly NewSession[],
    claim?: RequestClaim,
  ): Promise<OpenRefusal | undefined> | undefined;
  /**
   * Adds a record; the records of one turn of the event loop form one write. An immediate outcome holds once the store
   * delivers replies.
   */
  append(id: string, epoch: number, n: number, kind: EntryKind, body: string): Promise<Outcome> | Outcome;
  /**
   * Becomes the writer of a session.
   * @param known the newest id that this server has, where it has the session
   * @param owner only a session of this client; undefined for an administrator
   */
  take(
    id: string,
    known: string | undefined,
    owner: string | undefined,
    forgetMs: number,
  ): Promise<Taken> | Taken;
  /** @throws NotStorable; Problem `storage_full`, `storage_failed` */
  checkpoint(id: string, at: RecordPosition, change: StoredChange): Promise<Outcome>;
  /** Ends a session; without a position it ends for any writer. */
  end(
    id: string,
    at: EndPosition | undefined,
    tombstone: Tombstone,
    forgetMs: number,
  ): Promise<Outcome> | Outcome;
}

/**
 * The entries that count: from the last checkpoint on, each with the next number. A hole comes from a record that the store
 * refused, and what follows it was never acknowledged.
 */
export function countedEntries(entries: readonly StoredEntry[]): readonly StoredEntry[] {
  const start = entries.findLastIndex(({ kind }) => kind === 'C');
  const counted: StoredEntry[] = [];
  for (const entry of entries.slice(Math.max(start, 0))) {
    if (entry.kind === 'T') continue;
    if (counted.length === 0 || entry.n === counted.at(-1)!.n + 1) counted.push(entry);
  }
  return counted;
}
