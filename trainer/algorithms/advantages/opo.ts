import { type AdvantageEstimator, type AdvantageSequence, spread } from './estimator.ts';
import { episodeKey, groupOutcomes } from './groups.ts';

/**
 * On-policy RL with the optimal baseline: A = R − Σ L·R / Σ L over the group, L the sampled tokens of an episode. A
 * group of one keeps its reward.
 *
 * Source: Hao et al., 2025 (OPO); verl 0.6.1 `compute_opo_outcome_advantage`.
 */
export const opo: AdvantageEstimator = {
  needs: ['groups'],
  perSequence: true,
  estimate(sequences) {
    const lengths = episodeLengths(sequences);
    const groups = groupOutcomes(sequences);
    const values = groups.map(({ score, members }) => {
      if (members.length === 1) return score;
      let weighted = 0;
      let total = 0;
      for (const member of members) {
        weighted += lengths[member] * groups[member].score;
        total += lengths[member];
      }
      return total === 0 ? 0 : score - weighted / total;
    });
    return { advantages: spread(sequences, values), returns: spread(sequences, values) };
  },
};

/** Sampled tokens of each sequence's whole episode. */
function episodeLengths(sequences: readonly AdvantageSequence[]): number[] {
  const totals = new Map<string, number>();
  sequences.forEach((sequence, i) => {
    let own = 0;
    for (let t = 0; t < sequence.lossMask.length; t++) if (sequence.lossMask[t]) own++;
    totals.set(episodeKey(sequence, i), (totals.get(episodeKey(sequence, i)) ?? 0) + own);
  });
  return sequences.map((sequence, i) => totals.get(episodeKey(sequence, i))!);
}
