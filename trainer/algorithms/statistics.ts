import { Random } from '../../shared/random.ts';

/** Mean of the values; NaN of none. */
export function mean(values: ArrayLike<number>): number {
  let sum = 0;
  for (let i = 0; i < values.length; i++) sum += values[i];
  return sum / values.length;
}

/** Σ (x − mean)² / (n − divisorOffset). */
function variance(values: ArrayLike<number>, divisorOffset: number): number {
  const center = mean(values);
  let squares = 0;
  for (let i = 0; i < values.length; i++) squares += (values[i] - center) ** 2;
  return squares / (values.length - divisorOffset);
}

/** Variance with n − 1 in the denominator, as torch computes it; NaN for fewer than two values. */
export function unbiasedVariance(values: ArrayLike<number>): number {
  return values.length < 2 ? Number.NaN : variance(values, 1);
}

/** Square root of {@link unbiasedVariance}. */
export function unbiasedStd(values: ArrayLike<number>): number {
  return Math.sqrt(unbiasedVariance(values));
}

/** Standard deviation with n in the denominator; NaN of none. */
export function populationStd(values: ArrayLike<number>): number {
  return Math.sqrt(variance(values, 0));
}

/** Pearson correlation of pairs; NaN where one of the two does not vary. */
export function correlation(xs: readonly number[], ys: readonly number[]): number {
  const [x, y] = [mean(xs), mean(ys)];
  let [xy, xx, yy] = [0, 0, 0];
  xs.forEach((value, i) => {
    xy += (value - x) * (ys[i] - y);
    xx += (value - x) ** 2;
    yy += (ys[i] - y) ** 2;
  });
  return xy / Math.sqrt(xx * yy);
}

/** Positions of the items under their key, keys in the order of first appearance. */
export function positionsBy<T, K>(items: readonly T[], key: (item: T, index: number) => K): Map<K, number[]> {
  const groups = new Map<K, number[]>();
  items.forEach((item, index) => {
    const name = key(item, index);
    const group = groups.get(name);
    if (group) group.push(index);
    else groups.set(name, [index]);
  });
  return groups;
}

/** 97.5 % quantile of the standard normal: two-sided 95 %. */
const Z_95 = 1.959963984540054;

/**
 * Wilson's 95 % score interval of a share (Wilson, 1927): the success probabilities that `successes` of
 * `trials` are compatible with. Without trials: 0 to 1.
 */
export function wilsonInterval(successes: number, trials: number): readonly [low: number, high: number] {
  if (trials === 0) return [0, 1];
  const share = successes / trials;
  const spread = (Z_95 * Z_95) / trials;
  const center = (share + spread / 2) / (1 + spread);
  const half = (Z_95 / (1 + spread)) * Math.sqrt((share * (1 - share)) / trials + spread / (4 * trials));
  return [Math.max(0, center - half), Math.min(1, center + half)];
}

/** A difference between paired values with its bootstrap interval and p-value. */
interface PairedDifference {
  /** Mean of b − a. */
  readonly difference: number;
  /** 95 % percentile interval of the bootstrap over the pairs. */
  readonly low: number;
  readonly high: number;
  /**
   * Two-sided p-value of the exact sign-flip test: the share of sign patterns at least as extreme as the observed one.
   */
  readonly p: number;
}

const RESAMPLES = 10_000;
/** Up to this many pairs all sign patterns are tried; beyond, as many are drawn as there are resamples. */
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
