import { mean, positionsBy, unbiasedStd } from '../statistics.ts';

/** Which episodes are normalized together: a group of equal starts, the whole batch, or all episodes of a tag. */
export type RewardGrouping = (typeof REWARD_GROUPINGS)[number];
export const REWARD_GROUPINGS = ['state', 'batch', 'inductive'] as const;

export type RewardMethod = (typeof REWARD_METHODS)[number];
export const REWARD_METHODS = ['identity', 'mean', 'mean_std', 'asym_clip'] as const;

export interface RewardNormalization {
  readonly grouping: RewardGrouping;
  readonly method: RewardMethod;
}

/** An episode's total reward, format penalties included, and where it belongs. */
export interface RewardedEpisode {
  readonly reward: number;
  readonly groupId: number | string;
  readonly tag: string;
}

const STD_FLOOR = 1e-6;
const ASYMMETRIC_LOW = -1;
const ASYMMETRIC_HIGH = 3;

/**
 * Normalized rewards, one per episode:
 *
 * identity R · mean R − mean · mean_std (R − mean) / (std + 1e-6), 0 where std ≤ 1e-6 · asym_clip = mean_std clipped to
 * −1 … 3. Standard deviations are unbiased; an episode alone in its set keeps R under every method.
 *
 * RAGEN V1's names: ARPO = identity, BRPO = batch/mean_std, GRPO = state/mean_std. Source: RAGEN V2
 * `_normalize_score_tensor`.
 * @throws RangeError listing the valid choices
 */
export function normalizeRewards(
  episodes: readonly RewardedEpisode[],
  { grouping, method }: RewardNormalization,
): Float64Array {
  const normalized = new Float64Array(episodes.length);
  const normalize = normalizer(method);
  for (const positions of positionsBy(episodes, groupKey(grouping)).values()) {
    const rewards = Float64Array.from(positions, position => episodes[position].reward);
    const values = rewards.length === 1 ? rewards : normalize(rewards);
    positions.forEach((position, i) => {
      normalized[position] = values[i];
    });
  }
  return normalized;
}

function groupKey(grouping: RewardGrouping): (episode: RewardedEpisode) => number | string {
  switch (grouping) {
    case 'state':
      return episode => episode.groupId;
    case 'batch':
      return () => 'batch';
    case 'inductive':
      return episode => episode.tag;
    default:
      throw new RangeError(`no reward grouping "${grouping}"; choose one of ${REWARD_GROUPINGS.join(', ')}`);
  }
}

function normalizer(method: RewardMethod): (rewards: Float64Array) => Float64Array {
  switch (method) {
    case 'identity':
      return rewards => rewards;
    case 'mean':
      return rewards => {
        const center = mean(rewards);
        return rewards.map(reward => reward - center);
      };
    case 'mean_std':
      return standardize;
    case 'asym_clip':
      return rewards => standardize(rewards).map(z => Math.min(Math.max(z, ASYMMETRIC_LOW), ASYMMETRIC_HIGH));
    default:
      throw new RangeError(`no reward method "${method}"; choose one of ${REWARD_METHODS.join(', ')}`);
  }
}

function standardize(rewards: Float64Array): Float64Array {
  const center = mean(rewards);
  const std = unbiasedStd(rewards);
  return rewards.map(reward => (std > STD_FLOOR ? (reward - center) / (std + STD_FLOOR) : 0));
}
