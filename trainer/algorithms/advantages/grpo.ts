import { type AdvantageEstimator, spread } from './estimator.ts';
import { groupOutcomes } from './groups.ts';

const STD_FLOOR = 1e-6;

/**
 * Group relative policy optimization: A = (R − mean) / (std + 1e-6) over the group, the same for every sampled
 * token. Unbiased std; each episode counts once; a group of one has mean 0 and std 1.
 *
 * Source: Shao et al., 2024 (DeepSeekMath); RAGEN V2 `compute_grpo_outcome_advantage`.
 */
export const grpo: AdvantageEstimator = {
  needs: ['groups'],
  perSequence: true,
  estimate(sequences) {
    const values = groupOutcomes(sequences).map(({ score, mean, std }) => (score - mean) / (std + STD_FLOOR));
    return { advantages: spread(sequences, values), returns: spread(sequences, values) };
  },
};
