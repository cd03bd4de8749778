import type { Random } from '../../shared/random.ts';
import {
  type Exponentials,
  MemoryPlan,
  openExponentials,
  PAGE_BYTES,
} from '../tensor/runtime/wasm/kernels.ts';
import type { SamplingSettings, TopLogProbs } from './generation.ts';
import type { LogitsProcessor } from './logits-processor.ts';

const LANES = 4;
/** Result in place of a token when there is no largest logit. */
const NOT_A_NUMBER = -1;
const NONE_ALLOWED = -2;
/** Message of the error when a request's own settings leave no token. */
export const NOTHING_LEFT =
  'no token can be sampled: grammar, bad words and biases of the request together allow none';

/** The token sampled and its log-probability under the distribution it was sampled from. */
export interface SampledToken {
  token: number;
  logProb: number;
}

/** Constraints of a row's token besides the settings. */
export interface RowConstraints {
  /** 1 where a token may be sampled; absent or null allows all. */
  readonly allowed?: Uint8Array | null;
  /** Changes logits first. */
  readonly processor?: LogitsProcessor | null;
}

/**
 * Samples tokens from rows of logits. It reuses its own arrays, so a sample allocates next to nothing; top-k and top-p
 * cost a sort. Order of the steps, as in transformers: {@link LogitsProcessor}, grammar, temperature, top-k, top-p,
 * min-p. (vLLM applies min-p before top-k; the two differ only where both cut.) Temperature 0 takes the largest logit
 * (the first of equals) with log-probability 0, because its distribution is a single point.
 */
export class Sampler {
  /** Unnormalized probabilities. */
  readonly #weights: Float32Array;
  /** Values that pad the last vector. */
  readonly #padding: Float32Array;
  readonly #exponentials: Exponentials;
  /** Room for top-k, and for top-p. */
  readonly #sorted: Float32Array;
  readonly #order: Int32Array;
  readonly #sample: SampledToken = { token: 0, logProb: 0 };
  /** Sum of the weights of the last sample. */
  #total = 0;
  /** Row of the last sample after processing. */
  #logits: Float32Array;
  #start = 0;
  #allowed: Uint8Array | null = null;
  #greedy = false;
  /** Room for logits that a processor has changed. */
  readonly #processed: Float32Array;

  constructor(vocabularySize: number) {
    const plan = new MemoryPlan();
    const padding = (LANES - (vocabularySize % LANES)) % LANES;
    const weights = plan.place(vocabularySize + padding);
    const scratch = plan.place(LANES);
    const blocks = Math.ceil(plan.end / PAGE_BYTES);
    const memory = new WebAssembly.Memory({ initial: blocks, maximum: blocks });
    this.#weights = new Float32Array(memory.buffer, weights, vocabularySize);
    this.#padding = new Float32Array(memory.buffer, weights + this.#weights.byteLength, padding);
    this.#exponentials = openExponentials(memory, scratch);
    this.#sorted = new Float32Array(vocabularySize);
    this.#order = new Int32Array(vocabularySize);
    this.#processed = new Float32Array(vocabularySize);
    this.#logits = this.#processed;
  }

  /**
   * @param logits a row begins at `start`
   * @returns an object that the next call overwrites
   * @throws RangeError when a relevant logit is NaN, or no token is left
   */
  sample(
    given: Float32Array,
    givenStart: number,
    settings: SamplingSettings,
    rng: Random,
    { allowed = null, processor = null }: RowConstraints = {},
  ): SampledToken {
    const weights = this.#weights;
    const count = weights.length;
    const logits = processor === null ? given : this.#process(given, givenStart, processor);
    const start = processor === null ? givenStart : 0;
    this.#logits = logits;
    this.#start = start;
    this.#allowed = allowed;
    this.#greedy = settings.temperature === 0;
    const best = largest(logits, start, count, allowed);
    if (best === NOT_A_NUMBER) throw new RangeError('no token can be sampled: logits are NaN');
    if (best === NONE_ALLOWED) throw new RangeError(NOTHING_LEFT);
    const sample = this.#sample;
    if (settings.temperature === 0) {
      sample.token = best;
      sample.logProb = 0;
      return sample;
    }
    let total = this.#weigh(logits, start, logits[start + best], 1 / settings.temperature);
    if (allowed !== null) total = this.#forbid(allowed);
    total = this.#truncate(settings, total, weights[best]);
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

  /** The `count` most probable tokens of the row that the last {@link sample} took `token` from. */
  top(token: number, count: number): TopLogProbs {
    const weights = this.#weights;
    if (this.#greedy) {
      const [logits, start, allowed] = [this.#logits, this.#start, this.#allowed];
      const best = logits[start + largest(logits, start, weights.length, allowed)];
      this.#total = this.#weigh(logits, start, best, 1);
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

  #process(logits: Float32Array, start: number, processor: LogitsProcessor): Float32Array {
    const row = this.#processed;
    for (let i = 0; i < row.length; i++) row[i] = logits[start + i];
    processor.process(row);
    return row;
  }

  /** Sets all weights and returns their sum. */
  #weigh(logits: Float32Array, start: number, largest: number, scale: number): number {
    const weights = this.#weights;
    for (let i = 0; i < weights.length; i++) weights[i] = logits[start + i];
    this.#padding.fill(-Infinity);
    return this.#exponentials(weights.byteOffset, weights.length, largest, scale);
  }

  /** Sets the weights of forbidden tokens to 0; returns the sum of the rest. */
  #forbid(allowed: Uint8Array): number {
    const weights = this.#weights;
    let total = 0;
    for (let i = 0; i < weights.length; i++) {
      if (allowed[i] === 0) weights[i] = 0;
      else total += weights[i];
    }
    return total;
  }

  /**
   * Sets the weights of tokens outside top-k, top-p and min-p to 0; returns the sum of the rest.
   * @param greatest weight of all
   */
  #truncate({ topK, topP, minP = 0 }: SamplingSettings, total: number, greatest: number): number {
    let left = total;
    if (topK > 0 && topK < this.#weights.length) left = this.#keepLargest(topK);
    if (topP < 1) left = this.#keepMass(topP, left);
    return minP > 0 ? this.#keepAbove(minP * greatest) : left;
  }

  #keepAbove(least: number): number {
    const weights = this.#weights;
    let mass = 0;
    for (let i = 0; i < weights.length; i++) {
      if (weights[i] < least) weights[i] = 0;
      else mass += weights[i];
    }
    return mass;
  }

  #keepLargest(most: number): number {
    const weights = this.#weights;
    const sorted = this.#sorted;
    sorted.set(weights);
    sorted.sort();
    const smallest = sorted[sorted.length - most];
    let above = 0;
    for (let i = sorted.length - 1; i >= 0 && sorted[i] > smallest; i--) above++;
    // Among tokens as likely as the last kept one, the first ones are kept.
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
    // All tokens below this together weigh less than the part to cut off, so none of them can be kept.
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
  const { temperature, topK, topP, minP = 0, maxNewTokens } = settings;
  if (!(temperature >= 0) || !Number.isFinite(temperature)) {
    throw new RangeError(`temperature must be a number of at least 0, got ${temperature}`);
  }
  if (!Number.isInteger(topK) || topK < 0)
    throw new RangeError(`topK must be an integer of at least 0, got ${topK}`);
  if (!(topP > 0 && topP <= 1)) throw new RangeError(`topP must be above 0 and at most 1, got ${topP}`);
  if (!(minP >= 0 && minP <= 1)) throw new RangeError(`minP must be from 0 to 1, got ${minP}`);
  if (!Number.isInteger(maxNewTokens) || maxNewTokens < 1) {
    throw new RangeError(`maxNewTokens must be an integer of at least 1, got ${maxNewTokens}`);
  }
}

function largest(logits: Float32Array, start: number, count: number, allowed: Uint8Array | null): number {
  let best = NONE_ALLOWED;
  let value = -Infinity;
  for (let i = 0; i < count; i++) {
    if (allowed !== null && allowed[i] === 0) continue;
    const logit = logits[start + i];
    if (Number.isNaN(logit)) return NOT_A_NUMBER;
    if (logit > value) {
      value = logit;
      best = i;
    }
  }
  return best;
}
