import { mean, unbiasedStd } from '../statistics.ts';
import { FILTER_STRATEGIES, STRATEGIES } from './registry.ts';
import type { FilterScore, FilterSettings, SelectionSettings } from './settings.ts';
import type { SelectionStrategy } from './strategy.ts';

/** Scores up to this size count as zero: every episode of the group went alike. */
const ZERO_SCORE = 1e-10;

/**
 * Positions of the groups to keep, ascending.
 *
 * Source: RAGEN V2 `RolloutFilter._select_top_groups`.
 * @throws RangeError for an unknown strategy, listing the valid ones
 */
export function selectGroups(scores: readonly number[], settings: SelectionSettings): number[] {
  if (!Object.hasOwn(STRATEGIES, settings.strategy)) {
    throw new RangeError(
      `no filter strategy "${settings.strategy}"; choose one of ${FILTER_STRATEGIES.join(', ')}`,
    );
  }
  const candidates = scores
    .map((_, i) => i)
    .filter(i => settings.includeZero || Math.abs(scores[i]) > ZERO_SCORE);
  if (candidates.length === 0) return [];
  const select: SelectionStrategy = STRATEGIES[settings.strategy];
  const kept = select(
    candidates.map(i => scores[i]),
    settings,
    scores.length,
  );
  return kept.map(i => candidates[i]).sort((a, b) => a - b);
}

/** The filter's view of one group: one entry per episode in each list. */
export interface FilterGroup {
  /** Total rewards, format penalties included. */
  readonly rewards: readonly number[];
  /** Mean entropy over each episode's sampled tokens; needed by the entropy scores. */
  readonly entropies?: readonly number[];
  /** Sampled tokens of each episode; needed by the score `length`. */
  readonly lengths?: readonly number[];
  /** Share of each episode in the group, summing to 1; absent: all alike. */
  readonly shares?: readonly number[];
}

export interface FilterResult {
  /** Positions of the kept groups, ascending. */
  readonly kept: readonly number[];
  /** Score of every group. */
  readonly scores: readonly number[];
  /** `rollout/in_group_*`, `rollout/chosen_*`, `rollout/filter_*`; means over no group are 0. */
  readonly metrics: Readonly<Record<string, number>>;
}

interface Statistics {
  readonly std: number;
  readonly max: number;
  readonly mean: number;
  readonly sum: number;
}

/** Which list a score is made of, under which name it is logged, and which statistic it is. */
const SCORES: Readonly<
  Record<FilterScore, { source: keyof FilterGroup; label: string; pick: keyof Statistics }>
> = {
  reward_std: { source: 'rewards', label: 'reward', pick: 'std' },
  reward_mean: { source: 'rewards', label: 'reward', pick: 'mean' },
  reward_sum: { source: 'rewards', label: 'reward', pick: 'sum' },
  reward_max: { source: 'rewards', label: 'reward', pick: 'max' },
  entropy: { source: 'entropies', label: 'entropy', pick: 'mean' },
  entropy_std: { source: 'entropies', label: 'entropy', pick: 'std' },
  length: { source: 'lengths', label: 'length', pick: 'mean' },
};

/**
 * SNR-adaptive filtering: keeps the groups with episodes that carry a learning signal. Groups are kept or dropped whole.
 *
 * A group's score is a statistic over its episodes (std unbiased; 0 for a single episode). Empty groups are refused.
 *
 * Source: RAGEN V2 `rollout_filter.py`, which calls reward_std `reward_variance` and reward_mean `reward`.
 * @throws RangeError for an unknown strategy, or when a group lacks what the score is made of
 */
export function filterGroups(groups: readonly FilterGroup[], settings: FilterSettings): FilterResult {
  const { source, label, pick } = SCORES[settings.score];
  const statistics = groups.map((group, i) =>
    describe(values(group, source, settings.score, i), group.shares),
  );
  const scores = statistics.map(group => group[pick]);
  const kept = selectGroups(scores, settings);
  const metrics: Record<string, number> = {};
  const average = (positions: readonly number[], key: keyof Statistics) =>
    positions.length === 0 ? 0 : mean(positions.map(position => statistics[position][key]));
  const all = groups.map((_, i) => i);
  for (const [prefix, positions] of [
    ['rollout/in_group', all],
    ['rollout/chosen_in_group', kept],
  ] as const) {
    for (const key of ['std', 'max', 'mean'] as const) {
      metrics[`${prefix}_${key}`] = average(positions, key);
      metrics[`${prefix}_${label}_${key}`] = average(positions, key);
    }
    if (label === 'reward') metrics[`${prefix}_reward_sum`] = average(positions, 'sum');
  }
  metrics['rollout/filter_kept_count'] = kept.length;
  metrics['rollout/filter_kept_ratio'] = groups.length === 0 ? 0 : kept.length / groups.length;
  metrics['rollout/filter_zero_count'] = scores.filter(score => Math.abs(score) <= ZERO_SCORE).length;
  return { kept, scores, metrics };
}

function values(
  group: FilterGroup,
  source: keyof FilterGroup,
  score: FilterScore,
  index: number,
): readonly number[] {
  const list = group[source];
  if (!list || list.length === 0)
    throw new RangeError(`filter score ${score} needs ${source} of group ${index}`);
  return list;
}

function describe(list: readonly number[], shares?: readonly number[]): Statistics {
  if (shares && list.length > 1) return describeShares(list, shares);
  const center = mean(list);
  return {
    std: list.length > 1 ? unbiasedStd(list) : 0,
    max: Math.max(...list),
    mean: center,
    sum: center * list.length,
  };
}

/** Mean and std with weights; Σw(x − mean)²/(1 − Σw²) is the unbiased variance where all weights are alike. */
function describeShares(list: readonly number[], shares: readonly number[]): Statistics {
  const center = list.reduce((sum, value, i) => sum + shares[i] * value, 0);
  const squares = list.reduce((sum, value, i) => sum + shares[i] * (value - center) ** 2, 0);
  const concentration = shares.reduce((sum, weight) => sum + weight * weight, 0);
  return {
    std: Math.sqrt(squares / (1 - concentration)),
    max: Math.max(...list),
    mean: center,
    sum: center * list.length,
  };
}
