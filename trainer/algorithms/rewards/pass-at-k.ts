/**
 * Probability that at least one of k attempts succeeds, estimated without bias from n ≥ k attempts of which c
 * succeeded: 1 − C(n − c, k) / C(n, k) (Chen et al., 2021). With k = n: whether any succeeded.
 * @throws RangeError unless 1 ≤ k ≤ n and 0 ≤ c ≤ n
 */
export function passAtK(attempts: number, successes: number, k: number): number {
  if (!(k >= 1 && k <= attempts)) throw new RangeError(`pass@${k} needs 1 ≤ k ≤ ${attempts} attempts`);
  if (!(successes >= 0 && successes <= attempts)) {
    throw new RangeError(`${successes} successes in ${attempts} attempts`);
  }
  let failure = 1;
  for (let i = 0; i < k; i++) failure *= Math.max(0, attempts - successes - i) / (attempts - i);
  return 1 - failure;
}

/** Mean of {@link passAtK} over groups of attempts at the same start. */
export function meanPassAtK(groups: readonly (readonly boolean[])[], k: number): number {
  let sum = 0;
  for (const group of groups) sum += passAtK(group.length, group.filter(Boolean).length, k);
  return sum / groups.length;
}
