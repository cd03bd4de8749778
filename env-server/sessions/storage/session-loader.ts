import type { Logger } from 'pino';
import type { Json } from '../../../shared/json.ts';
import { bootId } from '../../persistence/lock.ts';
import type { SessionRow, SessionRows } from '../../persistence/session-rows.ts';
import type { EndedSession, EndReason } from '../ended.ts';
import type { SessionManager } from '../manager.ts';
import type { VariantCatalog } from '../variant-catalog.ts';
import { replacedReason } from './lost-reason.ts';
import type { Resumption } from './resumption.ts';
import { hashesOf, SessionImage } from './session-image.ts';
import { DOCUMENT_VERSION } from './stored-items.ts';
import {
  fromVersion1,
  type SessionOfVersion1,
  type StoredHead,
  type StoredReply,
  type StoredSession,
  type StoredSettings,
} from './stored-session.ts';

/** The first form, which is still read. */
const ONE_DOCUMENT = 1;

export interface SessionLoaderParts {
  readonly sessions: SessionManager;
  readonly catalog: VariantCatalog;
  readonly log: Logger;
  readonly editionOf: (envId: string) => string;
  readonly rows: SessionRows;
  /** Learns how far the database covers the journal. */
  readonly resumption: Resumption;
  /** A stored session cannot be opened again. */
  readonly onEnded: (ended: EndedSession) => void;
}

/** Opens what the database has of sessions, replies and ends, once at the start. */
export class SessionLoader {
  readonly #parts: SessionLoaderParts;
  /** The machine went down since the database was last written. */
  #machineEnded = false;

  constructor(parts: SessionLoaderParts) {
    this.#parts = parts;
  }

  /** @returns ids of the sessions that stand where they stood */
  load(): string[] {
    const { sessions, rows, resumption } = this.#parts;
    const moment = rows.clock();
    if (moment) sessions.goOnFrom(moment);
    this.#machineEnded = moment !== undefined && moment.boot !== bootId();
    const now = sessions.now();
    for (const row of rows.ended()) {
      // What the journal still has of it.
      resumption.covers(row.id, Number.POSITIVE_INFINITY, true);
      if (row.forgetAt > now) sessions.recallEnded(row as EndedSession);
    }
    this.#loadReplies();
    return this.#loadSessions();
  }

  #loadSessions(): string[] {
    const { sessions, rows, log } = this.#parts;
    const resumed: string[] = [];
    const counts = { resumed: 0, rolled_back: 0, lost: 0 };
    for (const row of rows.sessions()) {
      const end = this.#recall(row);
      if (end === undefined) {
        counts.resumed++;
        // Others stay as they are until they are written with what is known of them.
        if (sessions.get(row.id)?.changed) counts.rolled_back++;
        else resumed.push(row.id);
        continue;
      }
      if (end.ending === 'session_lost') counts.lost++;
      this.#parts.onEnded(end);
      this.#parts.resumption.covers(row.id, Number.POSITIVE_INFINITY, true);
    }
    if (counts.resumed + counts.lost > 0) log.info(counts, `resumed ${counts.resumed} sessions`);
    return resumed;
  }

  #recall(row: SessionRow): EndedSession | undefined {
    const { sessions, catalog, editionOf, log } = this.#parts;
    const { id, owner } = row;
    const end = (ending: EndReason, reason: string | null): EndedSession => {
      if (reason !== null) log.warn({ session_id: id, reason }, `session ${id} is lost`);
      return { id, owner, ending, reason, forgetAt: sessions.forgetAt };
    };
    if (row.lost !== null) return end('session_lost', row.lost);
    try {
      const image = new SessionImage();
      const stored = this.#read(row, image);
      if (!stored) return end('session_lost', 'it was stored by another version of the server');
      if (stored.deadline <= sessions.now()) return end('session_expired', null);
      const variant = catalog.variant(stored.envId, stored.config, stored.wrappers);
      if (editionOf(stored.envId) !== row.edition) return end('session_lost', replacedReason(stored.envId));
      const session = sessions.recall(stored, variant, image);
      if (row.standing === 'open' || (row.standing === 'journaled' && this.#machineEnded)) session.rollBack();
      this.#parts.resumption.covers(id, stored.past.recorded, row.standing === 'atRest');
      return undefined;
    } catch (error) {
      return end('session_lost', (error as Error).message);
    }
  }

  #read({ id, version, settings, document }: SessionRow, image: SessionImage): StoredSession | undefined {
    if (document === null) return undefined;
    if (version === ONE_DOCUMENT) return fromVersion1(JSON.parse(document) as SessionOfVersion1);
    if (version !== DOCUMENT_VERSION || settings === null) return undefined;
    const content = image.read(JSON.parse(document) as StoredHead, this.#parts.rows.parts(id));
    return { ...(JSON.parse(settings) as StoredSettings), ...content };
  }

  #loadReplies(): void {
    const { sessions, rows } = this.#parts;
    const byOwner = new Map<string, { replies: StoredReply[]; dropped: Uint32Array[] }>();
    const of = (owner: string) => {
      const known = byOwner.get(owner) ?? { replies: [], dropped: [] };
      byOwner.set(owner, known);
      return known;
    };
    for (const { owner, key, operation, asked, reply } of rows.replies()) {
      const { replies } = of(owner);
      replies.push({ number: replies.length, key, operation, asked, reply: JSON.parse(reply) as Json });
    }
    for (const { owner, hashes } of rows.droppedKeys()) of(owner).dropped.push(hashesOf(hashes));
    for (const [owner, { replies, dropped }] of byOwner) sessions.recallReplies(owner, replies, dropped);
  }
}
