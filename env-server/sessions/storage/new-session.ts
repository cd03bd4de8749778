import type { Json } from '../../../shared/json.ts';
import type { OpenBody, RecordBody } from '../../persistence/journal/records.ts';
import { type NewSession, NotStorable, type StoredChange } from '../../store/session-store.ts';
import type { EndedSession } from '../ended.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { openBody, type Recorder } from './recorded-episode.ts';
import { type SessionChange, SessionImage } from './session-image.ts';

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
  let change: SessionChange;
  try {
    change = image.change(content);
  } catch (error) {
    throw new NotStorable((error as Error).message, { cause: error });
  }
  const settings = image.isThere ? null : JSON.stringify(session.settings);
  const edition = editionOf(variant.base.spec.id);
  const { parts, remove } = change;
  const head = change.head as unknown as Json;
  return { change: { owner, edition, settings, head, parts, remove }, stored: () => session.stored(content) };
}
