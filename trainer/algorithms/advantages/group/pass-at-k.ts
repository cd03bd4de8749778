import { groupEstimator, STD_FLOOR } from '../groups.ts';

/**
 * Only the best of the group has an advantage: R_max − R_second, divided by (std + 1e-6) with `stdNormalize`; a tie of
 * the best gives 0 to all. k is the size of the group. Source: arXiv 2503.19595; verl
 * `compute_grpo_passk_outcome_advantage`.
 */
export const passAtK = groupEstimator((groups, sequences, { stdNormalize }) =>
  groups.map(({ score, std, members }, i) => {
    if (members.length < 2) {
      throw new RangeError(
        `pass_at_k needs at least 2 episodes in a group, but group ${sequences[i].groupId} has ${members.length}`,
      );
    }
    const others = members.map(position => groups[position].score).toSorted((a, b) => b - a);
    if (score < others[0]) return 0;
    return (others[0] - others[1]) / (stdNormalize ? std + STD_FLOOR : 1);
  }),
);
