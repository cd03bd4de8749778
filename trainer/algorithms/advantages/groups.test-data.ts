import type { AdvantageSequence } from './estimator.ts';

/** A group of one-token episodes with the given rewards. */
export function rewardGroup(rewards: readonly number[], groupId: number | string = 0): AdvantageSequence[] {
  return rewards.map(reward => ({ lossMask: [1], rewards: [reward], groupId }));
}
