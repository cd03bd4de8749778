import { compared, groupEstimator } from './groups.ts';

/**
 * Group relative policy optimization: A = (R − mean) / (std + 1e-6) over the group, the same for every sampled
 * token. Unbiased std; each episode counts once; a group of one has mean 0 and std 1.
 *
 * Source: Shao et al., 2024 (DeepSeekMath); RAGEN V2 `compute_grpo_outcome_advantage`.
 */
export const grpo = groupEstimator(groups => groups.map(group => compared(group, true)));
