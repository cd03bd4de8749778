import { Random } from '../../../shared/random.ts';

export const BRANCH_CHOICES = ['drawn', 'fixed', 'entropy'] as const;
/** Choice of the turns after which a chain branches; it never depends on later turns. */
type BranchChoice = (typeof BRANCH_CHOICES)[number];

/** Shape of the trees of a group. Turns count from 1; a chain branches after one. */
export interface TreePlan {
  readonly where: BranchChoice;
  /** Trees, which begin in the same state. */
  readonly roots: number;
  /** Chains after a branch, the one that continues included. */
  readonly children: number;
  /** Turns of `fixed`, and candidates of `drawn`; null: all but the last. */
  readonly turns: readonly number[] | null;
  /** Branches of a chain at most (`drawn`, `entropy`). */
  readonly branches: number;
  /** Generations of branches (`drawn`, `entropy`): 1: a branch does not branch again. */
  readonly depth: number;
  /** Probability of a branch after a turn as uncertain as the first, and its change with the entropy (`entropy`). */
  readonly base: number;
  readonly weight: number;
  /** Branches draw other events than the chain they come from. */
  readonly freshLuck: boolean;
}

/** Number and place of the continuations that value an episode's histories. */
export interface VinePlan {
  /** Continuations of a history. */
  readonly clones: number;
  /** Turns from one valued history to the next. */
  readonly every: number;
  /** They draw other events than the episode. */
  readonly freshLuck: boolean;
}

/** Leaves of one tree at most. */
export function leavesPerRoot({ where, children, turns, branches, depth }: TreePlan): number {
  if (where === 'fixed') return children ** (turns?.length ?? 0);
  const added = where === 'entropy' ? branches : branches * (children - 1);
  let leaves = 1;
  for (let generation = 0; generation < depth; generation++) leaves = 1 + added * leaves;
  return leaves;
}

/**
 * Turns after which a chain branches, chosen before it is played; empty for `entropy`.
 * @param done turns that were played before the chain began
 */
export function plannedTurns(
  { where, turns, branches }: TreePlan,
  { maxTurns, done, seed }: { readonly maxTurns: number; readonly done: number; readonly seed: number },
): readonly number[] {
  if (where === 'entropy') return [];
  const all = turns ?? Array.from({ length: Math.max(0, maxTurns - 1) }, (_, i) => i + 1);
  const open = all.filter(turn => turn > done && turn < maxTurns);
  if (where === 'fixed') return open;
  const rng = Random.fromSeed(seed);
  const left = [...open];
  const chosen: number[] = [];
  while (chosen.length < branches && left.length > 0)
    chosen.push(...left.splice(rng.integer(left.length), 1));
  return chosen;
}

/**
 * Probability of a branch after a turn: clip(base + weight·(H − H₀), 0, 1), H the entropy of the turn over log(vocabulary), H₀ that of
 * the first turn. Source: ARPO (arXiv 2507.19849), which sums entropies over tokens where this takes the mean.
 */
export function branchProbability(
  entropy: number,
  first: number,
  { base, weight }: Pick<TreePlan, 'base' | 'weight'>,
): number {
  return Math.min(1, Math.max(0, base + weight * (entropy - first)));
}
