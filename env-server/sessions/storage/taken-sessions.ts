import type { Json } from '../../../shared/json.ts';
import { type JournalRecord, type RecordBody, recordOf } from '../../persistence/journal/records.ts';
import { Problem } from '../../problems.ts';
import { countedEntries, type StoredContent, type Tombstone } from '../../store/session-store.ts';
import type { Principal } from '../principal.ts';
import type { Session } from '../session.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { replacedReason } from './lost-reason.ts';
import { episodeOfRecord } from './recorded-episode.ts';
import { openedSession, redo } from './redo.ts';
import { SessionImage } from './session-image.ts';
import type { PartKind, StoredHead, StoredSession, StoredSettings } from './stored-session.ts';
import {
  type HeldSession,
  heldSession,
  type WrittenSessions,
  type WrittenSessionsParts,
} from './written-sessions.ts';

export interface TakenSessionsParts extends WrittenSessionsParts {
  /** The reply to a request that began an episode. */
  readonly viewOf: (session: Session) => Json;
  /** Learns what other servers have registered. */
  readonly refreshEnvironments: () => Promise<void>;
}

/** Makes this server the writer of sessions, and loads them from the store. */
export class TakenSessions {
  readonly #parts: TakenSessionsParts;
  readonly #written: WrittenSessions;
  readonly #loading = new Map<string, Promise<void>>();
  /** Number of times that this server became the writer of a session that it did not write. */
  taken = 0;

  constructor(parts: TakenSessionsParts, written: WrittenSessions) {
    this.#parts = parts;
    this.#written = written;
  }

  /** Makes this server the writer of a session. Undefined where it has ended: the manager knows how. */
  async hold(principal: Principal, id: string): Promise<HeldSession | undefined> {
    for (;;) {
      const loading = this.#loading.get(id);
      if (loading) await loading;
      else {
        const held = this.#written.get(id);
        if (held && this.#written.isUsable(held) && held.session.expiresAt > this.#parts.sessions.now())
          return held;
        const taking = this.#take(principal, id, held);
        this.#loading.set(id, taking);
        try {
          await taking;
        } finally {
          this.#loading.delete(id);
        }
        return this.#written.get(id);
      }
    }
  }

  async #take(principal: Principal, id: string, held: HeldSession | undefined): Promise<void> {
    const owner = principal.scopes.has('admin') ? undefined : principal.name;
    const known = held && !held.failed && !held.session.closed ? `${held.epoch}-${held.top}` : undefined;
    const taken = await this.#parts.store.take(id, known, owner, this.#written.forgetMs);
    if (taken.state === 'same' || taken.state === 'load') this.taken++;
    switch (taken.state) {
      case 'same':
        held!.epoch = taken.epoch;
        held!.top = 0;
        held!.stale = false;
        held!.session.usedAt = this.#parts.sessions.now();
        return;
      case 'elsewhere':
        throw new Problem(
          'session_elsewhere',
          `session ${id} can only be played by the server that opened it, since its environment holds more than its state`,
          { retryAfterSeconds: 1 },
        );
      case 'ended':
        // Without a tombstone the session may be that of another client.
        if (held && (taken.tombstone || held.session.owner === principal.name)) this.#written.drop(held);
        this.#recallEnd(id, taken.tombstone);
        return;
      case 'load':
        await this.#load(id, taken.content, held);
    }
  }

  async #load(id: string, content: StoredContent, copy: HeldSession | undefined): Promise<void> {
    if (copy) this.#written.drop(copy);
    const given = this.#written.takeGivenUp(id);
    const seen = copy?.seen ?? given;
    const { sessions, editionOf, refreshEnvironments, log } = this.#parts;
    const settings = settingsOf(content);
    if (editionOf(settings.envId) !== content.fields.get('edition')) await refreshEnvironments();
    // The lifetime counts also where there was no server.
    if (settings.deadline <= sessions.wall(sessions.now())) {
      const tombstone: Tombstone = { owner: settings.owner, ending: 'session_expired' };
      await this.#parts.store.end(id, content.epoch, tombstone, this.#written.forgetMs);
      this.#recallEnd(id, tombstone);
      return;
    }
    let session: Session;
    try {
      if (editionOf(settings.envId) !== content.fields.get('edition'))
        throw new Error(replacedReason(settings.envId));
      session = await restore(this.#parts, id, content, stored =>
        sessions.recall(stored.session, stored.variant, stored.image),
      );
    } catch (error) {
      const there = sessions.get(id);
      if (there) sessions.drop(there);
      if (error instanceof Problem) throw error;
      const reason = (error as Error).message;
      log.error({ session_id: id, err: error }, `session ${id} is lost`);
      const tombstone: Tombstone = { owner: settings.owner, ending: 'session_lost', reason };
      await this.#parts.store.end(id, content.epoch, tombstone, this.#written.forgetMs);
      this.#recallEnd(id, tombstone);
      return;
    }
    const counted = countedEntries(content.entries);
    const { recorded } = session;
    const own = heldSession(
      session,
      { epoch: content.epoch, top: 0 },
      {
        acknowledged: recorded,
        seen: counted.at(-1)!.kind === 'C' ? recorded - 1 : recorded,
        records: counted.length,
      },
    );
    this.#written.add(own);
    // A store that lost only a take or a checkpoint has the same state.
    const lost = seen !== undefined && recorded < seen;
    const otherEra =
      content.fields.get('era') !== content.era &&
      !['fsync', 'replicated'].includes(this.#parts.store.connection.durability);
    if (lost || (otherEra && seen === undefined)) session.rollBack();
    if (!lost && !otherEra) return;
    try {
      await this.#written.checkpoint(own);
    } catch (error) {
      // Its client has not heard yet that something was lost: the server that loads it next must see that again.
      if (seen !== undefined) this.#written.giveUp(id, seen);
      throw error;
    }
  }

  #recallEnd(id: string, tombstone: Tombstone | undefined): void {
    if (!tombstone) return;
    const { owner, ending, reason = null } = tombstone;
    this.#parts.sessions.recallEnded({ id, owner, ending, reason, forgetAt: this.#parts.sessions.forgetAt });
  }
}

/** The session as the store has it: from its last checkpoint, and what was done since done again. */
export async function restore(
  { catalog, viewOf, sessions }: Pick<TakenSessionsParts, 'catalog' | 'viewOf' | 'sessions'>,
  id: string,
  content: StoredContent,
  make: (stored: {
    session: StoredSession;
    variant: ReturnType<VariantCatalog['variant']>;
    image: SessionImage | undefined;
  }) => Session,
): Promise<Session> {
  const settings = settingsOf(content);
  const [first, ...rest] = countedEntries(content.entries);
  if (!first) throw new Error('nothing of it is in the store');
  const variant = catalog.variant(settings.envId, settings.config, settings.wrappers);
  // Times of the server's clock differ between servers: the store has the wall clock's.
  const own = { ...settings, deadline: sessions.now() + settings.deadline - sessions.wall(sessions.now()) };
  let session: Session;
  if (first.kind === 'C') {
    const image = new SessionImage();
    const parts = [...content.fields].flatMap(([field, data]) => {
      const [kind, number] = field.split(':');
      return number === undefined ? [] : [{ kind: kind as PartKind, number: Number(number), data }];
    });
    parts.sort((a, b) => a.number - b.number);
    const read = image.read(JSON.parse(first.body) as StoredHead, parts);
    session = make({ session: { ...own, ...read }, variant, image });
  } else {
    const body = JSON.parse(first.body) as RecordBody<'open'>;
    if (body.lost !== undefined || !body.episode) throw new Error(body.lost ?? 'its beginning is missing');
    const opened = openedSession(id, body, episodeOfRecord(body.seed, body.options, body.episode));
    session = make({ session: { ...opened, ...own }, variant, image: undefined });
  }
  session.recorded = first.n;
  for (const { kind, n, body } of rest) {
    const record = recordOf({
      kind,
      sessionId: id,
      n,
      body: body === '' ? undefined : JSON.parse(body),
    } as never);
    if (!record)
      throw new Problem(
        'storage_failed',
        `session ${id} is played by a newer version of the server: this one does not know its record ${n}`,
        { retryAfterSeconds: 1 },
      );
    session.recorded = n;
    const redone = redo(session, record as JournalRecord, viewOf);
    if (redone) await redone;
  }
  return session;
}

export function settingsOf({ fields }: StoredContent): StoredSettings {
  return JSON.parse(fields.get('settings')!) as StoredSettings;
}
