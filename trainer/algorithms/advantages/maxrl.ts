import { mean } from '../statistics.ts';
import { groupEstimator } from './groups.ts';

/**
 * Maximum-likelihood reinforcement learning: A = (R − μ) / μ over the group; hard groups weigh more, as in the gradient
 * of log success. A group that never succeeds (μ = 0) has advantage 0. Needs rewards ≥ 0: a negative mean would flip
 * the sign of every advantage, so it is rejected. Source: Maximum Likelihood Reinforcement Learning (MaxRL), 2026.
 * @throws RangeError for a negative episode reward
 */
export const maxrl = groupEstimator((groups, sequences) =>
  groups.map(({ score, members }, i) => {
    if (score < 0) {
      throw new RangeError(
        `maxrl needs rewards ≥ 0, but an episode of group ${sequences[i].groupId} has ${score}: set the format penalty and step penalties to 0, or choose grpo`,
      );
    }
    const center = mean(members.map(member => groups[member].score));
    return center === 0 ? 0 : (score - center) / center;
  }),
);
