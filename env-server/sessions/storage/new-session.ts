import type { Json } from '../../../shared/json.ts';
import type { OpenBody, RecordBody } from '../../persistence/journal/records.ts';
import type { DroppedKeysRow, ReplyRow, RowWrite } from '../../persistence/session-rows.ts';
import type { NewSession, StoredChange } from '../../store/session-store.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import type { VariantCatalog } from '../episodes/variant.ts';
import type { EndedSession } from '../finished-sessions.ts';
import { type ReplyCache, type ReplyChanges, storedReply } from '../replies/reply-cache.ts';
import type { Session } from '../session.ts';
import { openBody, type Recorder } from './recorded-episode.ts';
import { hashesOf, SessionImage, textOfHashes } from './session-image.ts';
import type { StoredReply } from './stored-session.ts';

/** Stores the operations of sessions: on this machine, or in a store that several servers share. */
export interface SessionJournal extends Recorder<Session> {
  /** True if sessions live in it beyond this server: those in memory are copies. */
  readonly isShared: boolean;
  /** True if replies to recorded operations wait for the disk. */
  readonly isSlow: boolean;
  /** The reply that has waited longest for the disk. */
  readonly oldestReply: object | undefined;
  /** @throws Problem `storage_full`, `storage_failed` */
  requireRoom(): void;
  /**
   * Delivers a reply once everything recorded before it is stored.
   * @param reads it acknowledges nothing
   */
  deliver(reply: () => void, reads?: boolean): void;
  /** One operation has opened sessions; of a large group some at a time. */
  opened(sessions: readonly Session[]): void;
  ended(session: Session, ended: EndedSession): void;
  /**
   * Remembers the reply to a client's request that concerns no session yet.
   * @returns where the journal cannot take it, a promise that resolves when the database has it
   */
  clientReply(body: RecordBody<'clientReply'>): Promise<void> | undefined;
}

/** The reason why a session cannot outlive its process; undefined where it can. */
export function lostReason({ variant }: Session, catalog: VariantCatalog): string | undefined {
  const { id } = variant.base.spec;
  if (!variant.copyable) {
    return `${id} holds more than its state, which could not be kept over a restart of the server`;
  }
  return catalog.offers(variant.base) ? undefined : replacedReason(id);
}

export function replacedReason(envId: string): string {
  return `${envId} was replaced while the session was open, and the definition it played is gone`;
}

export interface NewSessionParts {
  readonly catalog: VariantCatalog;
  /** Current definition of an environment id; a different string after every change. */
  readonly editionOf: (envId: string) => string;
}

/**
 * A new session in stored form.
 * @param episode its first episode
 * @param like id of a session with the same beginning: its record has the episode
 */
export function newSession(
  session: Session,
  { catalog, editionOf }: NewSessionParts,
  {
    episode,
    like,
    deadline = session.deadline,
  }: { readonly episode: EpisodeState; readonly like?: string; readonly deadline?: number },
): Omit<NewSession, 'record' | 'ttlMs'> & { readonly body: OpenBody } {
  const { id, serial, groupId } = session;
  const lost = lostReason(session, catalog);
  const settings = { ...session.settings, deadline };
  const edition = editionOf(settings.envId);
  return {
    id,
    serial,
    settings: settings as unknown as Json,
    edition,
    groupId,
    pinned: lost !== undefined,
    body: openBody(settings, edition, episode, { lost, like }),
  };
}

/**
 * The changes of a session since its last checkpoint.
 * @returns the changes, and a callback for when the store has them
 * @throws NotStorable
 */
export function changeOf(
  session: Session,
  { editionOf }: Pick<NewSessionParts, 'editionOf'>,
): { readonly change: StoredChange; stored(): void } {
  session.image ??= new SessionImage();
  const { image, owner, variant } = session;
  const content = session.content();
  const { head, parts, remove } = image.change(content);
  const settings = image.isThere ? null : JSON.stringify(session.settings);
  const edition = editionOf(variant.base.spec.id);
  return { change: { owner, edition, settings, head, parts, remove }, stored: () => session.stored(content) };
}

/** Changes of the replies to a client's requests that concerned no session yet. */
export interface ChangedReplies {
  readonly owner: string;
  readonly memory: ReplyCache;
  readonly changes: ReplyChanges;
}

/** Stored replies by client, with the hashes of dropped keys. */
export function repliesOf(rows: readonly ReplyRow[], droppedKeys: readonly DroppedKeysRow[]) {
  const clients = new Map<string, { owner: string; replies: StoredReply[]; dropped: Uint32Array[] }>();
  const of = (owner: string) => {
    const known = clients.get(owner) ?? { owner, replies: [], dropped: [] };
    clients.set(owner, known);
    return known;
  };
  for (const { owner, reply, ...entry } of rows) {
    const { replies } = of(owner);
    replies.push({ ...entry, number: replies.length, reply: JSON.parse(reply) as Json });
  }
  for (const { owner, hashes } of droppedKeys) of(owner).dropped.push(hashesOf(hashes));
  return clients.values();
}

/** Changes of each client's replies, where there are any. */
export function changedReplies(
  clients: Iterable<readonly [owner: string, memory: ReplyCache]>,
): readonly ChangedReplies[] {
  return [...clients]
    .map(([owner, memory]) => ({ owner, memory, changes: memory.changes }))
    .filter(({ changes: { added, removed, dropped } }) => added.length + removed.length + dropped.length > 0);
}

/**
 * The rows of changes.
 * @param at the time, in milliseconds since the epoch
 */
export function* replyRows(replies: readonly ChangedReplies[], at: number): Generator<RowWrite> {
  for (const { owner, changes } of replies) {
    for (const added of changes.added) {
      const { number: _number, reply, ...entry } = storedReply(added);
      yield ['putReply', { ...entry, owner, reply: JSON.stringify(reply) }];
    }
    for (const { key } of changes.removed) yield ['removeReply', { owner, key }];
    if (changes.dropped.length > 0)
      yield ['putDroppedKeys', { owner, hashes: textOfHashes(changes.dropped), at }];
  }
}
