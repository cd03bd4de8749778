import { Random } from '../../shared/random.ts';
import { mean } from './statistics.ts';

/** A difference between paired values with what the resampling says of it. */
export interface PairedDifference {
  /** Mean of b − a. */
  readonly difference: number;
  /** 95 % percentile interval of the bootstrap over the pairs. */
  readonly low: number;
  readonly high: number;
  /** Two-sided p-value of the exact sign-flip test: the share of sign patterns at least as extreme as what was seen. */
  readonly p: number;
}

const RESAMPLES = 10_000;
/** Up to so many pairs every pattern of signs is tried; beyond, as many are drawn as there are resamples. */
const EXACT_PAIRS = 13;

/**
 * Compares two variants over the same seeds: resamples the pairs (percentile bootstrap, Efron 1979) and flips their signs
 * (Fisher's randomization test). With n pairs the least p is 2^(1 − n): three seeds can never show less than 0.25.
 * @param a, b values by seed, in the same order; at least one pair
 * @throws RangeError when they are no pairs
 */
export function pairedBootstrap(a: readonly number[], b: readonly number[]): PairedDifference {
  if (a.length !== b.length || a.length === 0) {
    throw new RangeError(`paired values are wanted, got ${a.length} and ${b.length}`);
  }
  const differences = b.map((value, i) => value - a[i]);
  const rng = Random.fromSeed(0);
  const count = differences.length;
  const means = Float64Array.from({ length: RESAMPLES }, () => {
    let sum = 0;
    for (let i = 0; i < count; i++) sum += differences[rng.integer(count)];
    return sum / count;
  }).sort();
  return {
    difference: mean(differences),
    low: means[Math.floor(0.025 * (RESAMPLES - 1))],
    high: means[Math.ceil(0.975 * (RESAMPLES - 1))],
    p: signFlips(differences, rng),
  };
}

function signFlips(differences: readonly number[], rng: Random): number {
  const count = differences.length;
  const seen = Math.abs(mean(differences));
  const exact = count <= EXACT_PAIRS;
  const patterns = exact ? 2 ** count : RESAMPLES;
  let extreme = 0;
  for (let pattern = 0; pattern < patterns; pattern++) {
    let sum = 0;
    for (let i = 0; i < count; i++) {
      const flipped = exact ? (pattern >> i) & 1 : rng.integer(2);
      sum += flipped ? -differences[i] : differences[i];
    }
    if (Math.abs(sum / count) >= seen - 1e-12) extreme++;
  }
  return extreme / patterns;
}
