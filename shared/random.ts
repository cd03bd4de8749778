/** Plain-data state of a {@link Random}: four unsigned 32-bit words, never all zero. JSON-safe. */
export type RandomState = readonly [number, number, number, number];

const TWO_POW_32 = 2 ** 32;

/**
 * Seeded random numbers: xoshiro128** (Blackman & Vigna, 2018, https://prng.di.unimi.it) seeded through
 * SplitMix32. The same seed gives the same draws on every machine; the state is plain data, so a snapshot
 * of it continues with the same future.
 *
 * @example
 * const rng = Random.fromSeed(10000);
 * rng.integer(4); // 0, 1, 2 or 3
 * const twin = Random.fromState(rng.state); // draws what rng draws next
 */
export class Random {
  #a: number;
  #b: number;
  #c: number;
  #d: number;
  #madeFrom: number | undefined;

  private constructor(a: number, b: number, c: number, d: number) {
    this.#a = a | 0;
    this.#b = b | 0;
    this.#c = c | 0;
    this.#d = d | 0;
  }

  /**
   * @param seed an integer in [0, 2^53)
   * @throws RangeError when it is anything else
   */
  static fromSeed(seed: number): Random {
    if (!Number.isSafeInteger(seed) || seed < 0) {
      throw new RangeError(`seed must be an integer from 0 to ${Number.MAX_SAFE_INTEGER}, got ${seed}`);
    }
    let x = ((seed % TWO_POW_32) | 0) ^ Math.imul(Math.floor(seed / TWO_POW_32), 0x9e3779b1);
    const next = (): number => {
      x = (x + 0x9e3779b9) | 0;
      let z = x;
      z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
      z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
      return z ^ (z >>> 16);
    };
    const random = new Random(next(), next(), next(), next() | 1);
    random.#madeFrom = seed;
    return random;
  }

  static fromState(state: RandomState): Random {
    return new Random(state[0], state[1], state[2], state[3]);
  }

  get state(): RandomState {
    return [this.#a >>> 0, this.#b >>> 0, this.#c >>> 0, this.#d >>> 0];
  }

  /** The seed it was made from, until the first draw; undefined afterwards. */
  get seed(): number | undefined {
    if (this.#madeFrom === undefined) return undefined;
    const { state } = Random.fromSeed(this.#madeFrom);
    return this.state.every((word, index) => word === state[index]) ? this.#madeFrom : undefined;
  }

  /** Continues from a state, for draws that were made elsewhere. */
  moveTo(state: RandomState): void {
    [this.#a, this.#b, this.#c, this.#d] = state.map(word => word | 0);
  }

  /** Continues from another generator's state; the other one does not change. */
  follow(other: Random): void {
    this.#a = other.#a;
    this.#b = other.#b;
    this.#c = other.#c;
    this.#d = other.#d;
  }

  /** A uniform unsigned 32-bit integer. */
  uint32(): number {
    const b = this.#b;
    const rotated = Math.imul(b, 5);
    const result = Math.imul((rotated << 7) | (rotated >>> 25), 9);
    const t = b << 9;
    this.#c ^= this.#a;
    this.#d ^= b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= t;
    this.#d = (this.#d << 11) | (this.#d >>> 21);
    return result >>> 0;
  }

  /** Uniform in [0, 1) with 53 random bits. */
  float(): number {
    const high = this.uint32() >>> 5;
    const low = this.uint32() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }

  /**
   * Uniform integer in [0, n), without modulo bias.
   * @throws RangeError unless n is an integer from 1 to 2^32
   */
  integer(n: number): number {
    if (!Number.isInteger(n) || n < 1 || n > TWO_POW_32) {
      throw new RangeError(`integer(n) needs an integer n from 1 to 2^32, got ${n}`);
    }
    const limit = TWO_POW_32 - (TWO_POW_32 % n);
    let x = this.uint32();
    while (x >= limit) x = this.uint32();
    return x % n;
  }

  /** True with probability `p`. */
  chance(p: number): boolean {
    return this.float() < p;
  }

  /** One item, uniformly. */
  choice<T>(items: readonly T[]): T {
    return items[this.integer(items.length)];
  }

  /** Index drawn in proportion to non-negative weights that need not sum to one. */
  weighted(weights: ArrayLike<number>): number {
    let total = 0;
    for (let i = 0; i < weights.length; i++) total += weights[i];
    if (!(total > 0) || !Number.isFinite(total)) {
      throw new RangeError(`weights must be non-negative, finite and not all zero; their sum is ${total}`);
    }
    let rest = this.float() * total;
    let last = 0;
    for (let i = 0; i < weights.length; i++) {
      if (weights[i] > 0) {
        last = i;
        if (rest < weights[i]) return i;
        rest -= weights[i];
      }
    }
    return last;
  }

  /** A new array with the items in uniformly random order (Fisher–Yates). */
  shuffle<T>(items: readonly T[]): T[] {
    const out = items.slice();
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.integer(i + 1);
      const item = out[i];
      out[i] = out[j];
      out[j] = item;
    }
    return out;
  }

  /** Standard normal by Box–Muller; two uniforms a call, so no spare value is kept. */
  normal(): number {
    const u = 1 - this.float();
    return Math.sqrt(-2 * Math.log(u)) * Math.cos(2 * Math.PI * this.float());
  }
}
