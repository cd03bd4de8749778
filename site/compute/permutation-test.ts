/** Smaller differences between sums come from the order of addition. */
const ROUNDING = 1e-12;
/** Exact tests enumerate all assignments: 2^16 or C(16, 8). */
export const MAX_TESTED = 16;

export interface TestResult {
  /** Mean of the first group minus the mean of the second. */
  readonly difference: number;
  /** Two-sided: share of all assignments that differ at least as much. */
  readonly p: number;
  /** The smallest p that this number of runs can give. */
  readonly least: number;
}

/**
 * Exact sign-flip test of paired differences.
 * @returns undefined with no pairs or too many
 */
export function pairedTest(differences: readonly number[]): TestResult | undefined {
  const n = differences.length;
  if (n === 0 || n > MAX_TESTED) return undefined;
  const observed = differences.reduce((sum, value) => sum + value, 0);
  const all = 2 ** n;
  let extreme = 0;
  for (let signs = 0; signs < all; signs++) {
    let sum = 0;
    for (let i = 0; i < n; i++) sum += (signs >> i) & 1 ? -differences[i] : differences[i];
    if (Math.abs(sum) >= Math.abs(observed) - ROUNDING) extreme++;
  }
  return { difference: observed / n, p: extreme / all, least: 2 / all };
}

/**
 * Exact permutation test of two group means.
 * @returns undefined where one group is empty or they are too large
 */
export function unpairedTest(first: readonly number[], second: readonly number[]): TestResult | undefined {
  const values = [...first, ...second];
  const size = first.length;
  if (size === 0 || second.length === 0 || values.length > MAX_TESTED) return undefined;
  const total = values.reduce((sum, value) => sum + value, 0);
  const gap = (sum: number) => sum / size - (total - sum) / second.length;
  const observed = gap(first.reduce((sum, value) => sum + value, 0));
  let all = 0;
  let extreme = 0;
  for (let chosen = 0; chosen < 2 ** values.length; chosen++) {
    let count = 0;
    let sum = 0;
    for (let i = 0; i < values.length; i++) {
      if (!((chosen >> i) & 1)) continue;
      count++;
      sum += values[i];
    }
    if (count !== size) continue;
    all++;
    if (Math.abs(gap(sum)) >= Math.abs(observed) - ROUNDING) extreme++;
  }
  // Groups of equal size can be swapped, so the mirrored assignment is as extreme.
  return { difference: observed, p: extreme / all, least: (size === second.length ? 2 : 1) / all };
}
