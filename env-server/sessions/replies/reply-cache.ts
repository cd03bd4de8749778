import { randomInt } from 'node:crypto';
import type { Json } from '../../../shared/json.ts';
import type { MaybePromise } from '../../environments/core/maybe-promise.ts';
import { Problem } from '../../problems.ts';
import { sizeOf } from '../limits/budgets.ts';
import type { StoredReply } from '../storage/stored-session.ts';

/** Most remembered hashes: growing the table delays everything else. */
const MAX_HASHES = 2 ** 20;
const MIN_HASHES = 16;
/** A hash is two 32-bit words. */
const WORDS = 2;
/** Slots of the index for each hash that has room: a power of two. */
const SLOTS_PER_HASH = 2;
const WORD_BITS = 32;
/** A random salt, so that nobody can choose keys that share a slot. */
const SALTS = [randomInt(2 ** WORD_BITS), randomInt(2 ** WORD_BITS)] as const;

/** Used keys as 64-bit hashes in order: 16 to 32 bytes a key of any length. */
class KeyHashes {
  #hashes = new Uint32Array(0);
  /** Index + 1 of the hash in each slot; 0 for none. */
  #slots = new Uint32Array(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Memory of the tables, in bytes. */
  get bytes(): number {
    return this.#hashes.byteLength + this.#slots.byteLength;
  }

  has([high, low]: KeyHash): boolean {
    return this.#size > 0 && this.#slots[this.#slotOf(high, low)] !== 0;
  }

  add([high, low]: KeyHash): void {
    this.#add(high, low);
  }

  /** Adds the hashes that `since` returned. */
  addAll(hashes: Uint32Array): void {
    for (let i = 0; i + 1 < hashes.length; i += WORDS) this.#add(hashes[i], hashes[i + 1]);
  }

  /** A copy of the hashes from this index on. */
  since(first: number): Uint32Array {
    return this.#hashes.slice(first * WORDS, this.#size * WORDS);
  }

  #add(high: number, low: number): void {
    if (this.#size * WORDS === this.#hashes.length) this.#grow();
    const slot = this.#slotOf(high, low);
    if (this.#slots[slot] !== 0) return;
    this.#hashes[this.#size * WORDS] = high;
    this.#hashes[this.#size * WORDS + 1] = low;
    this.#slots[slot] = ++this.#size;
  }

  /** Slot of a hash, or the free slot where it would go. */
  #slotOf(high: number, low: number): number {
    const hashes = this.#hashes;
    const slots = this.#slots;
    const mask = slots.length - 1;
    const mixed = Math.imul(low ^ SALTS[0], 0x9e3779b1) ^ Math.imul(high ^ SALTS[1], 0x85ebca6b);
    let slot = Math.imul(mixed ^ (mixed >>> 15), 0xc2b2ae35) >>> (Math.clz32(mask) % WORD_BITS);
    for (let number = slots[slot]; number !== 0; number = slots[slot]) {
      const at = (number - 1) * WORDS;
      if (hashes[at] === high && hashes[at + 1] === low) break;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  #grow(): void {
    const room = Math.max(MIN_HASHES, 2 * this.#size);
    const hashes = new Uint32Array(room * WORDS);
    hashes.set(this.#hashes);
    this.#hashes = hashes;
    this.#slots = new Uint32Array(room * SLOTS_PER_HASH);
    for (let number = 1; number <= this.#size; number++) {
      const at = (number - 1) * WORDS;
      this.#slots[this.#slotOf(hashes[at], hashes[at + 1])] = number;
    }
  }
}

/** Two words of 32 bits. */
type KeyHash = readonly [high: number, low: number];

/** cyrb53 (bryc, public domain) with all of its 64 bits. Its values are stored, so it must not change. */
function hashOf(key: string): KeyHash {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let i = 0; i < key.length; i++) {
    const code = key.charCodeAt(i);
    high = Math.imul(high ^ code, 0x9e3779b1);
    low = Math.imul(low ^ code, 0x5f356495);
  }
  high = Math.imul(high ^ (high >>> 16), 0x85ebca6b) ^ Math.imul(low ^ (low >>> 13), 0xc2b2ae35);
  low = Math.imul(low ^ (low >>> 16), 0x85ebca6b) ^ Math.imul(high ^ (high >>> 13), 0xc2b2ae35);
  return [high >>> 0, low >>> 0];
}

/** Keys of a request that are not part of its content. */
export const ENVELOPE = new Set(['id', 'op', 'request_key', 'timeout_ms']);
/** Bytes of an entry without its content. */
const ENTRY_BYTES = 160;
/** Share of the reply bytes that remains after older replies are dropped. */
const KEPT_SHARE = 7 / 8;
/** Sequence number of a reply in flight. */
const NO_NUMBER = -1;
/** Request number of replies loaded from the store; requests are numbered from 1. */
const NO_REQUEST = 0;
const RETRY_AFTER_SECONDS = 60;

interface CachedReply {
  readonly operation: string;
  /** The request under the key, or its fingerprint. */
  readonly asked: object | string;
  /** A promise while the request is in flight. */
  reply: unknown;
  /** Order of arrival of the replies. */
  number: number;
  bytes: number;
  /** Number of the request it came in; replies of one request never displace each other. */
  readonly request: number;
}

/** Owner of the replies, with its limit. */
export interface ReplyCacheOwner {
  /** Most bytes of replies; older ones are dropped for newer ones. */
  readonly replyBytes: number;
  /** Reports that the memory has grown by this many bytes; shrunk where negative. */
  grow(bytes: number): void;
}

/** Identifies a reply within its memory. */
export interface ReplyName {
  readonly number: number;
  readonly key: string;
}

/** A reply to be stored, not yet turned into text. */
export interface NewReply extends ReplyName {
  readonly operation: string;
  readonly asked: object | string;
  readonly reply: unknown;
}

/** Changes since a memory was last stored. */
export interface ReplyChanges {
  readonly added: readonly NewReply[];
  /** Replies that were stored and are dropped now. */
  readonly removed: readonly ReplyName[];
  /** Hashes of dropped keys, two words each. */
  readonly dropped: Uint32Array;
  /** Sequence numbers up to which it is stored once these changes are. */
  readonly end: { readonly replies: number; readonly dropped: number; readonly turn: number };
}

/**
 * Replies by request key, so that a repeated request changes nothing. A repeated request shares the reply of one in
 * flight; a failed request is forgotten. Where a reply had to make room for later ones, its key is remembered and
 * rejected.
 */
export class ReplyCache {
  readonly #holder: ReplyCacheOwner;
  readonly #entries = new Map<string, CachedReply>();
  /** Bytes of the kept replies. */
  #kept = 0;
  /** Replies that have come. */
  #count = 0;
  /** Keys of dropped replies. */
  #dropped = new KeyHashes();
  /** The same, of an earlier period. */
  #droppedBefore: KeyHashes | undefined;
  #turns = 0;
  #turnedAt: number | undefined;
  /** Sequence numbers up to which it is stored. */
  #stored = { replies: 0, dropped: 0 };
  #removed: ReplyName[] = [];

  constructor(holder: ReplyCacheOwner) {
    this.#holder = holder;
  }

  /** Loads stored replies. */
  recall(replies: readonly StoredReply[], dropped: readonly Uint32Array[] = []): void {
    for (const { number, key, operation, asked, reply } of replies) {
      const entry: CachedReply = { operation, asked, reply, number, bytes: 0, request: NO_REQUEST };
      this.#entries.set(key, entry);
      this.#count = Math.max(this.#count, number + 1);
      this.#weigh(key, entry);
    }
    const before = this.#dropped.bytes;
    for (const hashes of dropped) this.#dropped.addAll(hashes);
    this.#holder.grow(this.#dropped.bytes - before);
    this.#stored = { replies: this.#count, dropped: this.#dropped.size };
  }

  /** Changes to be stored now; replies still in flight come later. */
  get changes(): ReplyChanges {
    const added: NewReply[] = [];
    if (this.#stored.replies < this.#count) {
      for (const [key, { number, operation, asked, reply }] of this.#entries) {
        if (number < this.#stored.replies) continue;
        added.push({ number, key, operation, asked, reply });
      }
    }
    const dropped = this.#dropped.since(this.#stored.dropped);
    const end = { replies: this.#count, dropped: this.#dropped.size, turn: this.#turns };
    return { added, removed: this.#removed.slice(), dropped, end };
  }

  /** Marks these changes as stored. */
  stored({ added, removed, end }: ReplyChanges): void {
    const { turn, ...stored } = end;
    this.#stored = turn === this.#turns ? stored : { ...stored, dropped: 0 };
    this.#removed = this.#removed.slice(removed.length);
    // Keys dropped while the changes were being written.
    for (const { key, number } of added) {
      if (this.#entries.get(key)?.number !== number) this.#removed.push({ number, key });
    }
  }

  /**
   * The stored reply, or what `work` returns, stored.
   * @throws Problem `key_reused` when the key was used for something else, `request_key_expired` when its reply was
   * dropped, `too_many_requests` when no more dropped keys can be remembered
   * @param request number of the request that asks; the replies of a batch stay until the next request
   */
  once(
    key: string,
    operation: string,
    input: object,
    work: () => MaybePromise<unknown>,
    request = NO_REQUEST,
  ): MaybePromise<unknown> {
    const known = this.#entries.get(key);
    if (known) {
      if (known.operation !== operation || fingerprint(known.asked) !== fingerprint(input)) {
        throw new Problem('key_reused', `request key "${key}" was used for another ${known.operation}`);
      }
      return known.reply;
    }
    if (this.#dropped.size > 0 || this.#droppedBefore) this.#requireNew(key);
    const reply = work();
    const entry: CachedReply = { operation, asked: input, reply, number: NO_NUMBER, bytes: 0, request };
    this.#entries.set(key, entry);
    if (reply instanceof Promise) this.#await(key, entry, reply);
    else this.#keep(key, entry);
    return reply;
  }

  /** Adds a recorded reply, unless it is or was known already. */
  remember({ key, operation, asked, reply }: Omit<StoredReply, 'number'>): void {
    if (this.#entries.has(key) || this.#wasDropped(key)) return;
    const entry: CachedReply = {
      operation,
      asked,
      reply,
      number: NO_NUMBER,
      bytes: 0,
      request: NO_REQUEST,
    };
    this.#entries.set(key, entry);
    this.#keep(key, entry);
  }

  /** Forgets keys that were dropped at least this long ago, and at most twice as long. */
  turn(now: number, keepMs: number): void {
    this.#turnedAt ??= now;
    if (now - this.#turnedAt < keepMs) return;
    this.#turnedAt = now;
    this.#turns++;
    this.#holder.grow(-(this.#droppedBefore?.bytes ?? 0));
    this.#droppedBefore = this.#dropped;
    this.#dropped = new KeyHashes();
    this.#stored.dropped = 0;
  }

  #wasDropped(key: string): boolean {
    const hash = hashOf(key);
    return this.#dropped.has(hash) || (this.#droppedBefore?.has(hash) ?? false);
  }

  #requireNew(key: string): void {
    if (this.#wasDropped(key)) {
      throw new Problem(
        'request_key_expired',
        `the request with the key "${key}" was carried out, and its reply has been dropped for later ones`,
      );
    }
    if (this.#dropped.size >= MAX_HASHES) {
      throw new Problem(
        'too_many_requests',
        `${MAX_HASHES} request keys were used, the most that are remembered; continue without keys, or in another session`,
        { retryAfterSeconds: RETRY_AFTER_SECONDS },
      );
    }
  }

  #await(key: string, entry: CachedReply, reply: Promise<unknown>): void {
    reply.then(
      value => {
        entry.reply = value;
        this.#keep(key, entry);
      },
      () => {
        if (this.#entries.get(key) === entry) this.#entries.delete(key);
      },
    );
  }

  #keep(key: string, entry: CachedReply): void {
    entry.number = this.#count++;
    this.#weigh(key, entry);
    this.#trim(entry.request);
  }

  #weigh(key: string, entry: CachedReply): void {
    const { asked, reply } = entry;
    entry.bytes = ENTRY_BYTES + 2 * key.length + sizeOf(asked) + sizeOf(reply);
    this.#kept += entry.bytes;
    this.#holder.grow(entry.bytes);
  }

  /** Drops the oldest replies, several at a time, when there is no room. */
  #trim(request: number): void {
    const most = this.#holder.replyBytes;
    if (this.#kept <= most) return;
    const before = this.#dropped.bytes;
    for (const [key, { number, bytes, request: from }] of this.#entries) {
      if (this.#kept <= most * KEPT_SHARE || (from !== NO_REQUEST && from === request)) break;
      if (number === NO_NUMBER) continue;
      this.#entries.delete(key);
      this.#kept -= bytes;
      this.#holder.grow(-bytes);
      this.#dropped.add(hashOf(key));
      if (number < this.#stored.replies) this.#removed.push({ number, key });
    }
    this.#holder.grow(this.#dropped.bytes - before);
  }
}

/** A reply in stored form. */
export function storedReply({ asked, reply, ...name }: NewReply): StoredReply {
  return { ...name, asked: fingerprint(asked), reply: reply as Json };
}

/** Fingerprint of a request, compared with that of a later request under the same key. */
export function fingerprint(input: object | string): string {
  if (typeof input === 'string') return input;
  const keys: string[] = [];
  for (const key in input) if (!ENVELOPE.has(key)) keys.push(key);
  keys.sort();
  return JSON.stringify(keys.map(key => [key, (input as { readonly [key: string]: unknown })[key]]));
}
