import { countOnes } from '../training-sequence.ts';
import type { AdvantageSequence } from './estimator.ts';
import { episodeKey, groupEstimator } from './groups.ts';

/**
 * On-policy RL with the optimal baseline: A = R − Σ L·R / Σ L over the group, L the sampled tokens of an episode. A
 * group of one keeps its reward.
 *
 * Source: Hao et al., 2025 (OPO); verl 0.6.1 `compute_opo_outcome_advantage`.
 */
export const opo = groupEstimator((groups, sequences) => {
  const lengths = episodeLengths(sequences);
  return groups.map(({ score, members }) => {
    if (members.length === 1) return score;
    let weighted = 0;
    let total = 0;
    for (const member of members) {
      weighted += lengths[member] * groups[member].score;
      total += lengths[member];
    }
    return total === 0 ? 0 : score - weighted / total;
  });
});

/** Sampled tokens of each sequence's whole episode. */
function episodeLengths(sequences: readonly AdvantageSequence[]): number[] {
  const totals = new Map<string, number>();
  sequences.forEach((sequence, i) => {
    const key = episodeKey(sequence, i);
    totals.set(key, (totals.get(key) ?? 0) + countOnes(sequence.lossMask));
  });
  return sequences.map((sequence, i) => totals.get(episodeKey(sequence, i))!);
}
