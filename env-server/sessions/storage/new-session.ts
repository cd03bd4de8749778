import type { Json } from '../../../shared/json.ts';
import type { OpenBody } from '../../persistence/journal/records.ts';
import { type NewSession, NotStorable, type StoredChange } from '../../store/session-store.ts';
import type { EpisodeState } from '../episodes/episode.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { lostReason } from './lost-reason.ts';
import { openBody } from './recorded-episode.ts';
import { type SessionChange, SessionImage } from './session-image.ts';

export interface NewSessionParts {
  readonly catalog: VariantCatalog;
  /** Current definition of an environment id; another string after every change. */
  readonly editionOf: (envId: string) => string;
}

/**
 * A session that was just opened, as a store gets it.
 * @param episode the one that it begins
 * @param like id of a session that begins so, too: its record has the episode
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
 * What is new of a session since its last checkpoint.
 * @returns the change, and what to call when the store has it
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
