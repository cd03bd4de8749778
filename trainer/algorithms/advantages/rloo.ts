import { groupEstimator } from './groups.ts';

/**
 * REINFORCE leave-one-out: the baseline is the mean of the group's other episodes, A = n/(n − 1)·(R − mean). A
 * group of one keeps its reward.
 *
 * Source: Ahmadian et al., 2024; verl 0.6.1 `compute_rloo_outcome_advantage`.
 */
export const rloo = groupEstimator(groups =>
  groups.map(({ score, mean, episodes: n }) => (n === 1 ? score : (n / (n - 1)) * (score - mean))),
);
