import { performance } from 'node:perf_hooks';
import type { Logger } from 'pino';
import type { Json } from '../../shared/json.ts';
import { type FolderLock, lockFolder } from '../store/lock.ts';
import { type ReplyRow, type SessionRow, SessionRows } from '../store/session-rows.ts';
import { CLIENT_REPLIES_KEPT } from './admission.ts';
import type { Catalogue } from './catalogue.ts';
import type { EndedSession, Ending } from './ended.ts';
import type { SessionManager } from './manager.ts';
import type { Share } from './placement.ts';
import type { ReplyMemory } from './replies.ts';
import type { Session } from './session.ts';
import type { StoredReply, StoredSession } from './stored-session.ts';

/** Of the form of a stored session's document; another one cannot be read. */
const DOCUMENT_VERSION = 1;
/** What a checkpoint may hold up everything else at once. */
const SLICE_MS = 4;
const MS_PER_S = 1000;

const EVERYTHING: Share = { ownsSession: () => true, ownsReply: () => true };

export interface KeeperSettings {
  /** Folder of the database; empty keeps nothing. */
  readonly data: string;
  /** Time between checkpoints; 0 makes none. */
  readonly checkpointSeconds: number;
}

export interface KeeperParts {
  readonly sessions: SessionManager;
  readonly catalogue: Catalogue;
  readonly log: Logger;
  /** Which definition an environment id stands for now; another string after every change. */
  readonly editionOf: (envId: string) => string;
  /**
   * For one of several processes on one folder, whose lock is held by whoever started them. Absent, the server takes
   * the lock itself and keeps everything.
   */
  readonly share?: Share;
}

/** @returns undefined where sessions end with their server: without a folder, or when another server keeps its own there */
export function openKeeper(settings: KeeperSettings, parts: KeeperParts): SessionKeeper | undefined {
  if (settings.data === '') return undefined;
  const lock = parts.share ? undefined : lockFolder(settings.data);
  if (!lock && !parts.share) {
    parts.log.warn(
      `another server keeps its sessions in ${settings.data}: those of this one end with it; give it a folder of its own`,
    );
    return undefined;
  }
  return new SessionKeeper(settings, parts, lock);
}

/**
 * Keeps sessions beyond the process: writes those that changed at every checkpoint and all of them at the end, and
 * resumes them at the start. After an end without warning they stand where they stood at the last checkpoint.
 */
export class SessionKeeper {
  readonly #parts: KeeperParts;
  readonly #rows: SessionRows;
  readonly #share: Share;
  readonly #lock: FolderLock | undefined;
  readonly #checkpointMs: number;
  /** Ended, but not yet so in the database. */
  readonly #ended: EndedSession[] = [];
  #timer: NodeJS.Timeout | undefined;
  #underWay: Promise<void> | undefined;
  #finished = false;

  constructor(settings: KeeperSettings, parts: KeeperParts, lock: FolderLock | undefined) {
    this.#parts = parts;
    this.#lock = lock;
    this.#rows = new SessionRows(settings.data);
    this.#checkpointMs = settings.checkpointSeconds * MS_PER_S;
    this.#share = parts.share ?? EVERYTHING;
    parts.sessions.onEnd = ended => this.#ended.push(ended);
  }

  /** Opens the stored sessions again and begins to make checkpoints. Call it once, when their environments are there. */
  start(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const now = sessions.now();
    for (const row of rows.ended()) {
      if (row.forgetAt > now && this.#share.ownsSession(row.id)) sessions.recallEnded(row as EndedSession);
    }
    this.#recallReplies();
    const resumed: string[] = [];
    const counts = { resumed: 0, rolled_back: 0, lost: 0 };
    for (const row of rows.sessions()) {
      if (!this.#share.ownsSession(row.id)) continue;
      const end = this.#recall(row);
      if (end === undefined) {
        resumed.push(row.id);
        counts.resumed++;
        if (!row.atRest) counts.rolled_back++;
        continue;
      }
      if (end.ending === 'session_lost') counts.lost++;
      sessions.recallEnded(end);
      this.#ended.push(end);
    }
    rows.write({ ended: this.#ended, atRest: { ids: resumed, value: false } });
    rows.hurry();
    this.#ended.length = 0;
    if (counts.resumed + counts.lost > 0) this.#parts.log.info(counts, `resumed ${counts.resumed} sessions`);
    if (this.#checkpointMs === 0) return;
    this.#timer = setInterval(() => void this.checkpoint(), this.#checkpointMs).unref();
  }

  /** Writes what changed since the last one, a little at a time. A failure is logged, and made good by the next. */
  checkpoint(): Promise<void> {
    this.#underWay ??= this.#checkpoint()
      .catch(error =>
        this.#parts.log.error({ err: error }, 'a checkpoint failed; the next one writes what it did not'),
      )
      .finally(() => {
        this.#underWay = undefined;
      });
    return this.#underWay;
  }

  /** Writes everything and closes the database, for a server that ends. Sessions that cannot be kept end here. Does nothing the second time. */
  finish(): void {
    if (this.#finished) return;
    this.#finished = true;
    clearInterval(this.#timer);
    const { sessions } = this.#parts;
    const rows = this.#rows;
    for (const session of sessions.open()) {
      const reason = this.#lostBy(session);
      if (reason !== undefined) sessions.lose(session, reason);
    }
    const replies = this.#freshReplies();
    rows.bePatient();
    rows.write({
      put: mapped(changedOf(sessions.open()), session => this.#rowOf(session, true)),
      atRest: { ids: mapped(sessions.open(), ({ id }) => id), value: true },
      ended: this.#ended,
      replies: rowsOf(replies),
      forget: { now: sessions.now(), repliesKept: CLIENT_REPLIES_KEPT },
    });
    rows.close();
    this.#lock?.release();
    sessions.onEnd = undefined;
  }

  async #checkpoint(): Promise<void> {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    // A reply that names a session must not be there without it.
    const replies = this.#freshReplies();
    const ended = this.#ended.slice();
    try {
      await this.#inSlices(changedOf(sessions.open()), slice => {
        rows.write({ put: mapped(slice, session => this.#rowOf(session, false)) });
      });
      await this.#inSlices(ended, slice => rows.write({ ended: slice }));
      await this.#inSlices(rowsOf(replies), slice => rows.write({ replies: slice }));
    } catch (error) {
      for (const session of sessions.open()) session.changed = true;
      throw error;
    }
    if (this.#finished) return;
    this.#ended.splice(0, ended.length);
    for (const { memory, fresh } of replies) memory.kept(fresh);
    rows.write({ forget: { now: sessions.now(), repliesKept: CLIENT_REPLIES_KEPT } });
  }

  /** Gives items to `work` a few at a time, as many as it takes in within the slice, with room for others in between. */
  async #inSlices<T>(items: Iterable<T>, work: (slice: Iterable<T>) => void): Promise<void> {
    const iterator = items[Symbol.iterator]();
    let next = iterator.next();
    while (!next.done && !this.#finished) {
      const end = performance.now() + SLICE_MS;
      work(
        (function* () {
          do {
            yield next.value as T;
            next = iterator.next();
          } while (!next.done && performance.now() < end);
        })(),
      );
      await new Promise(resolve => setImmediate(resolve));
    }
  }

  #recall(row: SessionRow): EndedSession | undefined {
    const { sessions, catalogue, editionOf, log } = this.#parts;
    const { id, owner } = row;
    const end = (ending: Ending, reason: string | null): EndedSession => {
      if (reason !== null) log.warn({ session_id: id, reason }, `session ${id} is lost`);
      return { id, owner, ending, reason, forgetAt: sessions.forgetAt };
    };
    if (row.document === null) return end('session_lost', row.lost);
    if (row.version !== DOCUMENT_VERSION) {
      return end('session_lost', 'it was stored by another version of the server');
    }
    try {
      const stored = JSON.parse(row.document) as StoredSession;
      if (stored.deadline <= sessions.now()) return end('session_expired', null);
      const variant = catalogue.variant(stored.envId, stored.config, stored.wrappers);
      if (editionOf(stored.envId) !== row.edition) return end('session_lost', replaced(stored.envId));
      const past = row.atRest ? stored.past : { ...stored.past, rolledBack: true };
      sessions.recall({ ...stored, past }, variant);
      return undefined;
    } catch (error) {
      return end('session_lost', (error as Error).message);
    }
  }

  #recallReplies(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const byOwner = new Map<string, StoredReply[]>();
    for (const { owner, key, operation, asked, reply } of rows.replies()) {
      if (!this.#share.ownsReply(owner, key)) continue;
      const replies = byOwner.get(owner) ?? [];
      replies.push({ key, operation, asked, reply: JSON.parse(reply) as Json });
      byOwner.set(owner, replies);
    }
    for (const [owner, replies] of byOwner) sessions.recallReplies(owner, replies);
  }

  #rowOf(session: Session, atRest: boolean): SessionRow {
    session.changed = false;
    const { id, owner, variant } = session;
    const row = { id, owner, version: DOCUMENT_VERSION, edition: '', document: null, lost: null, atRest };
    const lost = this.#lostBy(session);
    if (lost !== undefined) return { ...row, lost };
    const edition = this.#parts.editionOf(variant.base.spec.id);
    return { ...row, edition, document: JSON.stringify(session.stored()) };
  }

  /** Why a session cannot be kept. */
  #lostBy({ variant }: Session): string | undefined {
    const { id } = variant.base.spec;
    if (!variant.copyable) {
      return `${id} holds more than its state, which could not be kept over a restart of the server`;
    }
    return this.#parts.catalogue.offers(variant.base) ? undefined : replaced(id);
  }

  #freshReplies(): FreshReplies[] {
    const all: FreshReplies[] = [];
    for (const [owner, memory] of this.#parts.sessions.clientReplies()) {
      const fresh = memory.stored('fresh');
      if (fresh.length > 0) all.push({ owner, memory, fresh });
    }
    return all;
  }
}

interface FreshReplies {
  readonly owner: string;
  readonly memory: ReplyMemory;
  readonly fresh: readonly StoredReply[];
}

function* rowsOf(replies: readonly FreshReplies[]): Generator<ReplyRow> {
  for (const { owner, fresh } of replies) {
    for (const { key, operation, asked, reply } of fresh) {
      yield { owner, key, operation, asked, reply: JSON.stringify(reply) };
    }
  }
}

function* changedOf(sessions: Iterable<Session>): Generator<Session> {
  for (const session of sessions) if (session.changed) yield session;
}

function* mapped<T, U>(items: Iterable<T>, change: (item: T) => U): Generator<U> {
  for (const item of items) yield change(item);
}

function replaced(envId: string): string {
  return `${envId} was replaced while the session was open, and the definition it played is gone`;
}
