import { hash, randomInt } from 'node:crypto';

/** Hashes that are kept at most: a table that grows holds up everything else. */
export const MOST_HASHES = 2 ** 20;
const FEWEST_HASHES = 16;
/** A hash has two words of 32 bits. */
const WORDS = 2;
/** Of the index for each hash that has room: a power of two. */
const SLOTS_A_HASH = 2;
/** Nobody can choose keys that share a slot. */
const SALT = randomInt(2 ** 32);
const MIXER = 0x9e3779b1;

/** Keys that were used, by the first 64 bits of their SHA-256 and in their order: 16 to 32 bytes a key, whatever its length. */
export class KeyHashes {
  #hashes = new Uint32Array(0);
  /** Of a hash, its number + 1. */
  #slots = new Uint32Array(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Memory of the tables. */
  get bytes(): number {
    return this.#hashes.byteLength + this.#slots.byteLength;
  }

  has(key: string): boolean {
    if (this.#size === 0) return false;
    const [high, low] = hashOf(key);
    return this.#slots[this.#slotOf(high, low)] !== 0;
  }

  add(key: string): void {
    const [high, low] = hashOf(key);
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

  /** Where a hash is, or would be. */
  #slotOf(high: number, low: number): number {
    const hashes = this.#hashes;
    const slots = this.#slots;
    const mask = slots.length - 1;
    let slot = (Math.imul(low ^ SALT, MIXER) >>> 8) & mask;
    for (let number = slots[slot]; number !== 0; number = slots[slot]) {
      const at = (number - 1) * WORDS;
      if (hashes[at] === high && hashes[at + 1] === low) break;
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  #grow(): void {
    const room = Math.max(FEWEST_HASHES, 2 * this.#size);
    const hashes = new Uint32Array(room * WORDS);
    hashes.set(this.#hashes);
    this.#hashes = hashes;
    this.#slots = new Uint32Array(room * SLOTS_A_HASH);
    for (let number = 1; number <= this.#size; number++) {
      const at = (number - 1) * WORDS;
      this.#slots[this.#slotOf(hashes[at], hashes[at + 1])] = number;
    }
  }
}

function hashOf(key: string): readonly [high: number, low: number] {
  const digest = hash('sha256', key, 'buffer');
  return [digest.readUInt32LE(0), digest.readUInt32LE(4)];
}
