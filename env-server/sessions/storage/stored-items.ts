import type {
  DroppedKeysRow,
  PartRow,
  ReplyRow,
  RowDurability,
  SessionChanges,
  SessionRow,
} from '../../persistence/session-rows.ts';
import type { EndedSession } from '../ended.ts';
import { type ReplyCache, type ReplyChanges, storedReply } from '../replies/reply-cache.ts';
import type { Session } from '../session.ts';
import { type PartKey, type SessionContent, SessionImage, textOfHashes } from './session-image.ts';

/** Version of the form of a stored session's documents. */
export const DOCUMENT_VERSION = 2;
/** Characters that are written at once. */
const SLICE_LENGTH = 512 * 1024;
/** Length of the row of a session that ended. */
const ENDED_LENGTH = 100;

/** Something to be written. */
export interface StoredItem {
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

/** Changes of a client's replies. */
export interface NewReplies {
  readonly owner: string;
  readonly memory: ReplyCache;
  readonly changes: ReplyChanges;
}

export interface StoredItemsParts {
  readonly editionOf: (envId: string) => string;
  /** Why a session cannot be kept. */
  readonly lostBy: (session: Session) => string | undefined;
  /** A session turned out not to be storable. */
  readonly onUnsaved: (session: Session, error: Error) => void;
}

/** Rows to write of sessions, one by one. */
export class StoredItems {
  readonly #parts: StoredItemsParts;
  /** Sessions that are being written, or not wholly written. */
  readonly writing = new Set<Session>();

  constructor(parts: StoredItemsParts) {
    this.#parts = parts;
  }

  /** Counts what was not wholly written as changed again. */
  giveUp(): void {
    for (const session of this.writing) session.changed = true;
    this.writing.clear();
  }

  *of(changed: Iterable<Session>, standing: RowDurability): Generator<StoredItem> {
    for (const session of changed) yield* this.#ofSession(session, standing);
  }

  /** Changes of a session. If they cannot be made text, that is noted, and the store keeps what it has of the session. */
  *#ofSession(session: Session, standing: RowDurability): Generator<StoredItem> {
    const { id, owner, variant } = session;
    session.changed = false;
    this.writing.add(session);
    session.image ??= new SessionImage();
    const { image } = session;
    const stored = (content?: SessionContent) => {
      this.writing.delete(session);
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
      standing,
    };
    const lost = this.#parts.lostBy(session);
    if (lost !== undefined) {
      yield { length: lost.length, row: { ...row, lost }, stored };
      return;
    }
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
      if (session.unsaved === undefined) this.#parts.onUnsaved(session, error as Error);
      session.cannotBeStored(reason);
      if (image.isThere) stored();
      else
        yield { length: reason.length, row: { ...row, lost: `it could not be stored: ${reason}` }, stored };
    } finally {
      if (session.closed) this.writing.delete(session);
    }
  }
}

export function* endedItems(ended: Iterable<EndedSession>): Generator<StoredItem> {
  for (const row of ended) yield { length: ENDED_LENGTH, ended: row };
}

/** @param at the time, in milliseconds since the epoch */
export function* replyItems(replies: readonly NewReplies[], at: number): Generator<StoredItem> {
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

/** Items as the database takes them. */
export function changesOf(items: readonly StoredItem[]): SessionChanges {
  return {
    putParts: definedOf(items, item => item.part),
    put: definedOf(items, item => item.row),
    removeParts: items.flatMap(({ row, remove = [] }) => remove.map(key => ({ sessionId: row!.id, ...key }))),
    ended: definedOf(items, item => item.ended),
    replies: definedOf(items, item => item.reply),
    removeReplies: definedOf(items, item => item.removeReply),
    droppedKeys: definedOf(items, item => item.droppedKeys),
  };
}

/** Items in batches, each of as many as come in time and are not too long together. */
export function* batchesOf(items: Iterable<StoredItem>, sliceMs: number): Generator<readonly StoredItem[]> {
  let batch: StoredItem[] = [];
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

/** Changes of each client's replies, where there are any. */
export function newReplies(clients: Iterable<readonly [owner: string, memory: ReplyCache]>): NewReplies[] {
  const all: NewReplies[] = [];
  for (const [owner, memory] of clients) {
    const { changes } = memory;
    if (changes.added.length + changes.removed.length + changes.dropped.length === 0) continue;
    all.push({ owner, memory, changes });
  }
  return all;
}
