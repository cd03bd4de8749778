import type { TopLogProbs } from '../generation/generation.ts';
import type { EpisodeSample } from './episode.ts';

const FIRST_CAPACITY = 256;

/** An agent's sampled tokens, with all arrays present or none needed. */
export interface SampledTokens {
  readonly tokenIds: ArrayLike<number>;
  readonly logProbs?: ArrayLike<number>;
  readonly values?: ArrayLike<number>;
  readonly versions?: ArrayLike<number>;
  /** Likeliest tokens at each position. */
  readonly top?: readonly TopLogProbs[];
  /** Tokens that could have been sampled at each position; empty: all tokens. */
  readonly allowed?: readonly Int32Array[];
}

/** A growing token sequence with the data of each token. */
export class TokenBuffer {
  #length = 0;
  #hasValues = false;
  #tokenIds = new Int32Array(FIRST_CAPACITY);
  #lossMask = new Uint8Array(FIRST_CAPACITY);
  #logProbs = new Float32Array(FIRST_CAPACITY);
  #values = new Float32Array(FIRST_CAPACITY);
  #versions = new Int32Array(FIRST_CAPACITY);
  /** Likeliest tokens by position, where the agent reported them. */
  #top = new Map<number, TopLogProbs>();
  #allowed: Map<number, Int32Array> | undefined;

  get length(): number {
    return this.#length;
  }

  /** Appends tokens that are not trained. */
  addContext(ids: ArrayLike<number>): void {
    this.#reserve(ids.length);
    this.#tokenIds.set(ids, this.#length);
    this.#length += ids.length;
  }

  /** Appends sampled tokens; returns their position. */
  addSampled(sampled: SampledTokens): [start: number, end: number] {
    const start = this.#length;
    const count = sampled.tokenIds.length;
    this.#reserve(count);
    this.#tokenIds.set(sampled.tokenIds, start);
    this.#lossMask.fill(1, start, start + count);
    if (sampled.logProbs) this.#logProbs.set(sampled.logProbs, start);
    if (sampled.versions) this.#versions.set(sampled.versions, start);
    for (const [i, top] of (sampled.top ?? []).entries()) this.#top.set(start + i, top);
    if (sampled.allowed) {
      this.#allowed ??= new Map();
      for (const [i, ids] of sampled.allowed.entries()) this.#allowed.set(start + i, ids);
    }
    if (sampled.values) {
      this.#values.set(sampled.values, start);
      this.#hasValues = true;
    }
    this.#length += count;
    return [start, this.#length];
  }

  /** An independent buffer with the same tokens. */
  copy(): TokenBuffer {
    const copy = new TokenBuffer();
    copy.#length = this.#length;
    copy.#hasValues = this.#hasValues;
    copy.#tokenIds = this.#tokenIds.slice();
    copy.#lossMask = this.#lossMask.slice();
    copy.#logProbs = this.#logProbs.slice();
    copy.#values = this.#values.slice();
    copy.#versions = this.#versions.slice();
    copy.#top = new Map(this.#top);
    copy.#allowed = this.#allowed && new Map(this.#allowed);
    return copy;
  }

  /** All tokens so far. */
  get tokenIds(): readonly number[] {
    return Array.from(this.#tokenIds.subarray(0, this.#length));
  }

  /** A copy of the sequence as it is now. */
  sample(): EpisodeSample {
    const end = this.#length;
    return {
      tokenIds: this.#tokenIds.slice(0, end),
      lossMask: this.#lossMask.slice(0, end),
      logProbs: this.#logProbs.slice(0, end),
      ...(this.#hasValues ? { values: this.#values.slice(0, end) } : {}),
      versions: this.#versions.slice(0, end),
      ...(this.#top.size > 0 ? { top: new Map(this.#top) } : {}),
      ...(this.#allowed ? { allowed: new Map(this.#allowed) } : {}),
    };
  }

  #reserve(count: number): void {
    const needed = this.#length + count;
    let capacity = this.#tokenIds.length;
    if (needed <= capacity) return;
    while (capacity < needed) capacity *= 2;
    const grow = <T extends Int32Array | Uint8Array | Float32Array>(from: T, to: T): T => {
      to.set(from);
      return to;
    };
    this.#tokenIds = grow(this.#tokenIds, new Int32Array(capacity));
    this.#lossMask = grow(this.#lossMask, new Uint8Array(capacity));
    this.#logProbs = grow(this.#logProbs, new Float32Array(capacity));
    this.#values = grow(this.#values, new Float32Array(capacity));
    this.#versions = grow(this.#versions, new Int32Array(capacity));
  }
}
