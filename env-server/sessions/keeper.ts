import { performance } from 'node:perf_hooks';
import type { Logger } from 'pino';
import type { Json } from '../../shared/json.ts';
import { type FolderLock, lockFolder } from '../persistence/lock.ts';
import {
  type DroppedKeysRow,
  type PartRow,
  type ReplyRow,
  type SessionChanges,
  type SessionRow,
  SessionRows,
} from '../persistence/session-rows.ts';
import type { Catalogue } from './catalogue.ts';
import type { EndedSession, Ending } from './ended.ts';
import type { SessionManager } from './manager.ts';
import type { Share } from './placement.ts';
import { type ReplyChanges, type ReplyMemory, storedReply } from './replies.ts';
import type { Session } from './session.ts';
import { hashesOf, type PartKey, type SessionContent, SessionImage, textOfHashes } from './session-image.ts';
import {
  fromVersion1,
  type SessionOfVersion1,
  type StoredHead,
  type StoredReply,
  type StoredSession,
  type StoredSettings,
} from './stored-session.ts';

/** Of the form of a stored session's documents. */
const DOCUMENT_VERSION = 2;
/** The first form, which is still read. */
const ONE_DOCUMENT = 1;
/** What a checkpoint may hold up everything else at once. */
const SLICE_MS = 4;
/** Characters that it may write at once. */
const SLICE_LENGTH = 512 * 1024;
/** Of the row of a session that ended. */
const ENDED_LENGTH = 100;
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
  /** Being written, or not wholly written. */
  readonly #writing = new Set<Session>();

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
    const moment = rows.clock();
    if (moment) sessions.goOnFrom(moment);
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
    rows.bePatient();
    const replies = this.#freshReplies();
    const changed = changedOf(sessions.open(), [...this.#writing]);
    for (const batch of batchesOf(this.#itemsOf(changed, true), Number.POSITIVE_INFINITY)) this.#put(batch);
    for (const batch of batchesOf(this.#replyItems(replies), Number.POSITIVE_INFINITY)) this.#put(batch);
    rows.write({
      atRest: { ids: savedOf(sessions.open()), value: true },
      ended: this.#ended,
      ...this.#housekeeping(),
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
      await this.#inSlices(this.#itemsOf(changedOf(sessions.open()), false));
      await this.#inSlices(mapped(ended, row => ({ length: ENDED_LENGTH, ended: row })));
      await this.#inSlices(this.#replyItems(replies));
    } catch (error) {
      for (const session of this.#writing) session.changed = true;
      this.#writing.clear();
      throw error;
    }
    if (this.#finished) return;
    this.#ended.splice(0, ended.length);
    for (const { memory, changes } of replies) memory.stored(changes);
    rows.write(this.#housekeeping());
  }

  /** Writes items a few at a time, as many as take no longer than the slice, with room for others in between. */
  async #inSlices(items: Iterable<Item>): Promise<void> {
    for (const batch of batchesOf(items, SLICE_MS)) {
      if (this.#finished) return;
      this.#put(batch);
      await new Promise(resolve => setImmediate(resolve));
      if (this.#finished) return;
    }
  }

  /** Writes items, all or none. */
  #put(items: readonly Item[]): void {
    this.#rows.write({
      putParts: definedOf(items, item => item.part),
      put: definedOf(items, item => item.row),
      removeParts: items.flatMap(({ row, remove = [] }) =>
        remove.map(key => ({ sessionId: row!.id, ...key })),
      ),
      ended: definedOf(items, item => item.ended),
      replies: definedOf(items, item => item.reply),
      removeReplies: definedOf(items, item => item.removeReply),
      droppedKeys: definedOf(items, item => item.droppedKeys),
    });
    for (const { stored } of items) stored?.();
  }

  #housekeeping(): SessionChanges {
    const { sessions } = this.#parts;
    const now = sessions.now();
    return {
      forget: { now, droppedBefore: now - 2 * sessions.keepKeysMs },
      clock: sessions.clock.moment,
    };
  }

  *#itemsOf(changed: Iterable<Session>, atRest: boolean): Generator<Item> {
    for (const session of changed) yield* this.#sessionItems(session, atRest);
  }

  /** What is new of a session. Where it cannot be made text, that is noted, and what the store has of it stays. */
  *#sessionItems(session: Session, atRest: boolean): Generator<Item> {
    const { id, owner, variant } = session;
    session.changed = false;
    this.#writing.add(session);
    const stored = (content?: SessionContent) => {
      this.#writing.delete(session);
      if (content) session.stored(content);
    };
    const row = {
      id,
      owner,
      version: DOCUMENT_VERSION,
      edition: '',
      settings: null,
      document: null,
      lost: null,
      atRest,
    };
    const lost = this.#lostBy(session);
    if (lost !== undefined) {
      yield { length: lost.length, row: { ...row, lost }, stored };
      return;
    }
    session.image ??= new SessionImage();
    const { image } = session;
    try {
      const content = session.content();
      const { parts, head, remove } = image.change(content);
      for (const part of parts) {
        yield { length: part.data.length, part: { ...part, sessionId: id } };
        if (session.closed) return;
      }
      const document = JSON.stringify(head);
      const settings = image.isThere ? null : JSON.stringify(session.settings);
      const edition = this.#parts.editionOf(variant.base.spec.id);
      yield {
        length: document.length + (settings?.length ?? 0),
        row: { ...row, edition, settings, document },
        remove,
        stored: () => stored(content),
      };
    } catch (error) {
      const reason = (error as Error).message;
      if (session.unsaved === undefined) {
        this.#parts.sessions.unsaved++;
        this.#parts.log.error({ session_id: id, err: error }, `session ${id} cannot be stored: ${reason}`);
      }
      session.cannotBeStored(reason);
      if (image.isThere) stored();
      else
        yield { length: reason.length, row: { ...row, lost: `it could not be stored: ${reason}` }, stored };
    } finally {
      if (session.closed) this.#writing.delete(session);
    }
  }

  #recall(row: SessionRow): EndedSession | undefined {
    const { sessions, catalogue, editionOf, log } = this.#parts;
    const { id, owner } = row;
    const end = (ending: Ending, reason: string | null): EndedSession => {
      if (reason !== null) log.warn({ session_id: id, reason }, `session ${id} is lost`);
      return { id, owner, ending, reason, forgetAt: sessions.forgetAt };
    };
    if (row.lost !== null) return end('session_lost', row.lost);
    try {
      const image = new SessionImage();
      const stored = this.#read(row, image);
      if (!stored) return end('session_lost', 'it was stored by another version of the server');
      if (stored.deadline <= sessions.now()) return end('session_expired', null);
      const variant = catalogue.variant(stored.envId, stored.config, stored.wrappers);
      if (editionOf(stored.envId) !== row.edition) return end('session_lost', replaced(stored.envId));
      const past = row.atRest ? stored.past : { ...stored.past, rolledBack: true };
      sessions.recall({ ...stored, past }, variant, image);
      return undefined;
    } catch (error) {
      return end('session_lost', (error as Error).message);
    }
  }

  #read({ id, version, settings, document }: SessionRow, image: SessionImage): StoredSession | undefined {
    if (document === null) return undefined;
    if (version === ONE_DOCUMENT) return fromVersion1(JSON.parse(document) as SessionOfVersion1);
    if (version !== DOCUMENT_VERSION || settings === null) return undefined;
    const content = image.read(JSON.parse(document) as StoredHead, this.#rows.parts(id));
    return { ...(JSON.parse(settings) as StoredSettings), ...content };
  }

  #recallReplies(): void {
    const { sessions } = this.#parts;
    const rows = this.#rows;
    const byOwner = new Map<string, { replies: StoredReply[]; dropped: Uint32Array[] }>();
    const of = (owner: string) => {
      const known = byOwner.get(owner) ?? { replies: [], dropped: [] };
      byOwner.set(owner, known);
      return known;
    };
    for (const { owner, key, operation, asked, reply } of rows.replies()) {
      if (!this.#share.ownsReply(owner, key)) continue;
      const { replies } = of(owner);
      replies.push({ number: replies.length, key, operation, asked, reply: JSON.parse(reply) as Json });
    }
    for (const { owner, hashes } of rows.droppedKeys()) of(owner).dropped.push(hashesOf(hashes));
    for (const [owner, { replies, dropped }] of byOwner) sessions.recallReplies(owner, replies, dropped);
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
      const { changes } = memory;
      if (changes.added.length + changes.removed.length + changes.dropped.length === 0) continue;
      all.push({ owner, memory, changes });
    }
    return all;
  }

  *#replyItems(replies: readonly FreshReplies[]): Generator<Item> {
    const at = this.#parts.sessions.now();
    for (const { owner, changes } of replies) {
      for (const added of changes.added) {
        const { number: _number, reply, ...entry } = storedReply(added);
        const text = JSON.stringify(reply);
        yield { length: text.length, reply: { ...entry, owner, reply: text } };
      }
      for (const { key } of changes.removed) yield { length: key.length, removeReply: { owner, key } };
      if (changes.dropped.length === 0) continue;
      const hashes = textOfHashes(changes.dropped);
      yield { length: hashes.length, droppedKeys: { owner, hashes, at } };
    }
  }
}

interface FreshReplies {
  readonly owner: string;
  readonly memory: ReplyMemory;
  readonly changes: ReplyChanges;
}

/** Something to be written. */
interface Item {
  /** Characters. */
  readonly length: number;
  readonly part?: PartRow & { readonly sessionId: string };
  readonly row?: SessionRow;
  /** Parts of the row's session that go with what it was. */
  readonly remove?: readonly PartKey[];
  readonly ended?: EndedSession;
  readonly reply?: ReplyRow;
  readonly removeReply?: { readonly owner: string; readonly key: string };
  readonly droppedKeys?: DroppedKeysRow;
  /** Called when it is written. */
  stored?(): void;
}

/** Items in batches, each of as many as come in time and are not too long together. */
function* batchesOf(items: Iterable<Item>, sliceMs: number): Generator<readonly Item[]> {
  let batch: Item[] = [];
  let length = 0;
  let end = performance.now() + sliceMs;
  for (const item of items) {
    batch.push(item);
    length += item.length;
    if (length < SLICE_LENGTH && performance.now() < end) continue;
    yield batch;
    batch = [];
    length = 0;
    end = performance.now() + sliceMs;
  }
  if (batch.length > 0) yield batch;
}

function definedOf<T, U>(items: readonly T[], member: (item: T) => U | undefined): U[] {
  return items.map(member).filter(value => value !== undefined);
}

/** Those that changed, those of a write that was not finished, and those that could not be stored. */
function* changedOf(sessions: Iterable<Session>, unfinished: readonly Session[] = []): Generator<Session> {
  const also = new Set(unfinished);
  for (const session of sessions) if (session.changed || also.has(session)) yield session;
}

function* savedOf(sessions: Iterable<Session>): Generator<string> {
  for (const { id, unsaved } of sessions) if (unsaved === undefined) yield id;
}

function* mapped<T, U>(items: Iterable<T>, change: (item: T) => U): Generator<U> {
  for (const item of items) yield change(item);
}

function replaced(envId: string): string {
  return `${envId} was replaced while the session was open, and the definition it played is gone`;
}
