import { randomInt } from 'node:crypto';

/** Hashes that are kept at most: a table that grows delays everything else. */
export const MAX_HASHES = 2 ** 20;
const MIN_HASHES = 16;
/** A hash has two words of 32 bits. */
const WORDS = 2;
/** Slots of the index for each hash that has room: a power of two. */
const SLOTS_PER_HASH = 2;
const WORD_BITS = 32;
/** Nobody can choose keys that share a slot. */
const SALTS = [randomInt(2 ** WORD_BITS), randomInt(2 ** WORD_BITS)] as const;

/** Keys that were used, by hashes of 64 bits and in their order: 16 to 32 bytes per key of any length. */
export class KeyHashes {
  #hashes = new Uint32Array(0);
  /** Number + 1 of the hash in each slot; 0 for none. */
  #slots = new Uint32Array(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Memory of the tables. */
  get bytes(): number {
    return this.#hashes.byteLength + this.#slots.byteLength;
  }

  has([high, low]: KeyHash): boolean {
    return this.#size > 0 && this.#slots[this.#slotOf(high, low)] !== 0;
  }

  add([high, low]: KeyHash): void {
    this.#add(high, low);
  }

  /** Adds what `since` gave. */
  addAll(hashes: Uint32Array): void {
    for (let i = 0; i + 1 < hashes.length; i += WORDS) this.#add(hashes[i], hashes[i + 1]);
  }

  /** The hashes from one on, as a copy. */
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

  /** Slot of a hash, or the free one where it would be. */
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
export type KeyHash = readonly [high: number, low: number];

/** cyrb53 (bryc, public domain) with all of its 64 bits. Stored: it must stay as it is. */
export function hashOf(key: string): KeyHash {
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
