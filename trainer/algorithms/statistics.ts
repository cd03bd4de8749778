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
