import { mean } from '../statistics.ts';
import { countOnes } from '../training-sequence.ts';
import type { AdvantageSequence } from './estimator.ts';
import { groupStds } from './groups.ts';

const LENGTH_FLOOR = 1e-6;

/**
 * × group std / largest group std of the batch: prompts that separate good from bad count fully, the others less.
 * The soft sibling of the rollout filter. Without any spread in the batch nothing changes.
 *
 * Source: RAGEN V2 `soft_advantage_reweight`.
 */
export function softReweight(
  advantages: readonly Float64Array[],
  sequences: readonly AdvantageSequence[],
): Float64Array[] {
  const weights = softWeights(sequences);
  return advantages.map((array, i) => array.map(a => a * weights[i]));
}

/** The factors of {@link softReweight}, one per sequence; log their min, max and mean. */
export function softWeights(sequences: readonly AdvantageSequence[]): Float64Array {
  const stds = groupStds(sequences);
  const largest = stds.reduce((a, b) => Math.max(a, b), 0);
  return stds.map(std => (largest > 0 ? std / largest : 1));
}

/**
 * ÷ relative length of the sequence (its sampled tokens / the batch's mean): short answers count more per token, so
 * length by itself earns nothing under `token_mean`. Source: RAGEN V2 `grpo_advantage_length_weight`.
 */
export function lengthReweight(
  advantages: readonly Float64Array[],
  sequences: readonly AdvantageSequence[],
): Float64Array[] {
  const lengths = sequences.map(({ lossMask }) => countOnes(lossMask));
  const center = mean(lengths);
  return advantages.map((array, i) => array.map(a => a / ((lengths[i] + LENGTH_FLOOR) / center)));
}

/**
 * Sets all advantages to 0, which leaves only the entropy and KL terms (an ablation). Source: RAGEN V2
 * `zero_task_advantage`.
 */
export function zeroTaskAdvantage(advantages: readonly Float64Array[]): Float64Array[] {
  return advantages.map(array => new Float64Array(array.length));
}
