import type { Random } from '../../shared/random.ts';
import { PAGE_BYTES } from '../tensor/runtime/wasm/code.ts';
import { compileExponentials, type Exponentials } from '../tensor/runtime/wasm/exponentials.ts';
import { MemoryPlan } from '../tensor/runtime/wasm/memory-plan.ts';
import type { SamplingSettings, TopLogProbs } from './generation.ts';

const LANES = 4;

/** The token sampled and its log-probability under the distribution it was sampled from. */
export interface SampledToken {
  token: number;
  logProb: number;
}

/** A row that a token was sampled from, and how many of its most probable tokens are wanted. */
export interface TopRequest {
  readonly logits: Float32Array;
  readonly start: number;
  readonly sampling: SamplingSettings;
  readonly allowed: Uint8Array | null;
  readonly token: number;
  readonly count: number;
}

/**
 * Samples tokens from rows of logits. The arrays it works in are its own and reused, so that a sample allocates next to
 * nothing; top-k and top-p cost a sort.
 *
 * Order of the steps, as in transformers and vLLM: grammar, temperature, top-k, top-p. Temperature 0 takes the largest
 * logit (the first of equals) with log-probability 0, as the distribution it samples from is a single point.
 */
export class Sampler {
  /** Probabilities but for a factor. */
  readonly #weights: Float32Array;
  /** What fills the last vector up. */
  readonly #padding: Float32Array;
  readonly #exponentials: Exponentials;
  /** Room for top-k, and for top-p. */
  readonly #sorted: Float32Array;
  readonly #order: Int32Array;
  readonly #sample: SampledToken = { token: 0, logProb: 0 };
  /** Sum of the weights of the last sample. */
  #total = 0;

  constructor(vocabularySize: number) {
    const plan = new MemoryPlan();
    const padding = (LANES - (vocabularySize % LANES)) % LANES;
    const weights = plan.place(vocabularySize + padding);
    const scratch = plan.place(LANES);
    const blocks = Math.ceil(plan.end / PAGE_BYTES);
    const memory = new WebAssembly.Memory({ initial: blocks, maximum: blocks });
    this.#weights = new Float32Array(memory.buffer, weights, vocabularySize);
    this.#padding = new Float32Array(memory.buffer, weights + this.#weights.byteLength, padding);
    this.#exponentials = compileExponentials(memory, scratch);
    this.#sorted = new Float32Array(vocabularySize);
    this.#order = new Int32Array(vocabularySize);
  }

  /**
   * @param logits a row begins at `start`
   * @param allowed 1 where a token may be sampled; null allows all
   * @returns an object that the next call overwrites
   * @throws RangeError when a logit that counts is NaN, or no token is left
   */
  sample(
    logits: Float32Array,
    start: number,
    settings: SamplingSettings,
    rng: Random,
    allowed: Uint8Array | null = null,
  ): SampledToken {
    const weights = this.#weights;
    const count = weights.length;
    const best = largest(logits, start, count, allowed);
    if (best === -1)
      throw new RangeError('no token can be sampled: logits are NaN or the grammar allows none');
    const sample = this.#sample;
    if (settings.temperature === 0) {
      sample.token = best;
      sample.logProb = 0;
      return sample;
    }
    let total = this.#weigh(logits, start, logits[start + best], 1 / settings.temperature);
    if (allowed !== null) total = this.#forbid(allowed);
    if (settings.topK > 0 || settings.topP < 1) total = this.#truncate(settings, total);
    this.#total = total;
    let rest = rng.float() * total;
    let token = best;
    for (let i = 0; i < count; i++) {
      const weight = weights[i];
      if (weight === 0) continue;
      token = i;
      if (rest < weight) break;
      rest -= weight;
    }
    sample.token = token;
    sample.logProb = Math.log(weights[token] / total);
    return sample;
  }

  /** The most probable tokens of the row that the last {@link sample} took its token from. */
  top({ logits, start, sampling, allowed, token, count }: TopRequest): TopLogProbs {
    const weights = this.#weights;
    if (sampling.temperature === 0) {
      this.#total = this.#weigh(
        logits,
        start,
        logits[start + largest(logits, start, weights.length, allowed)],
        1,
      );
      if (allowed !== null) this.#total = this.#forbid(allowed);
    }
    const logProb = (id: number): number => Math.log(weights[id] / this.#total);
    const best: number[] = [];
    for (let id = 0; id < weights.length && count > 0; id++) {
      if (weights[id] === 0 || (best.length === count && weights[id] <= weights[best[count - 1]])) continue;
      let at = best.length;
      while (at > 0 && weights[best[at - 1]] < weights[id]) at--;
      best.splice(at, 0, id);
      if (best.length > count) best.pop();
    }
    return {
      logProb: logProb(token),
      tokenIds: Int32Array.from(best),
      logProbs: Float32Array.from(best, logProb),
    };
  }

  /** Sets all weights and gives their sum. */
  #weigh(logits: Float32Array, start: number, largest: number, scale: number): number {
    const weights = this.#weights;
    for (let i = 0; i < weights.length; i++) weights[i] = logits[start + i];
    this.#padding.fill(-Infinity);
    return this.#exponentials(weights.byteOffset, weights.length, largest, scale);
  }

  /** Sets the weights of tokens that are not allowed to 0; gives the sum of what is left. */
  #forbid(allowed: Uint8Array): number {
    const weights = this.#weights;
    let total = 0;
    for (let i = 0; i < weights.length; i++) {
      if (allowed[i] === 0) weights[i] = 0;
      else total += weights[i];
    }
    return total;
  }

  /** Sets the weights of tokens outside top-k and top-p to 0; gives the sum of what is left. */
  #truncate({ topK, topP }: SamplingSettings, total: number): number {
    const left = topK > 0 && topK < this.#weights.length ? this.#keepLargest(topK) : total;
    return topP < 1 ? this.#keepMass(topP, left) : left;
  }

  #keepLargest(most: number): number {
    const weights = this.#weights;
    const sorted = this.#sorted;
    sorted.set(weights);
    sorted.sort();
    const smallest = sorted[sorted.length - most];
    let above = 0;
    for (let i = sorted.length - 1; i >= 0 && sorted[i] > smallest; i--) above++;
    // Of tokens as likely as the last one kept, the first ones stay.
    let equals = most - above;
    let mass = 0;
    for (let i = 0; i < weights.length; i++) {
      if (weights[i] < smallest || (weights[i] === smallest && equals-- <= 0)) weights[i] = 0;
      mass += weights[i];
    }
    return mass;
  }

  #keepMass(share: number, total: number): number {
    const weights = this.#weights;
    const order = this.#order;
    // All tokens below this together weigh less than what is to be cut off: none of them can be among those kept.
    const floor = ((1 - share) * total) / weights.length;
    let candidates = 0;
    for (let i = 0; i < weights.length; i++) {
      if (weights[i] > floor) order[candidates++] = i;
      else weights[i] = 0;
    }
    const ranked = order.subarray(0, candidates).sort((a, b) => weights[b] - weights[a] || a - b);
    let kept = 0;
    let mass = 0;
    while (kept < candidates && (kept === 0 || mass < share * total)) mass += weights[ranked[kept++]];
    for (let i = kept; i < candidates; i++) weights[ranked[i]] = 0;
    return mass;
  }
}

/** @throws RangeError naming the setting that is out of range */
export function checkSampling(settings: SamplingSettings): void {
  const { temperature, topK, topP, maxNewTokens } = settings;
  if (!(temperature >= 0) || !Number.isFinite(temperature)) {
    throw new RangeError(`temperature must be a number of at least 0, got ${temperature}`);
  }
  if (!Number.isInteger(topK) || topK < 0)
    throw new RangeError(`topK must be an integer of at least 0, got ${topK}`);
  if (!(topP > 0 && topP <= 1)) throw new RangeError(`topP must be above 0 and at most 1, got ${topP}`);
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1) {
    throw new RangeError(`maxNewTokens must be an integer of at least 1, got ${maxNewTokens}`);
  }
}

function largest(logits: Float32Array, start: number, count: number, allowed: Uint8Array | null): number {
  let best = -1;
  let value = -Infinity;
  for (let i = 0; i < count; i++) {
    if (allowed !== null && allowed[i] === 0) continue;
    const logit = logits[start + i];
    if (Number.isNaN(logit)) return -1;
    if (logit > value) {
      value = logit;
      best = i;
    }
  }
  return best;
}
