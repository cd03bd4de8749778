import { leafShares } from '../algorithms/advantages/tree/tree.ts';
import { FILTER_STRATEGIES, STRATEGIES } from '../algorithms/filters/registry.ts';
import {
  FILTER_LOSS_SCALINGS,
  type FilterLossScaling,
  type FilterScore,
  type FilterSettings,
  type SelectionSettings,
} from '../algorithms/filters/settings.ts';
import type { SelectionStrategy } from '../algorithms/filters/strategy.ts';
import { normalizeRewards } from '../algorithms/rewards/normalization.ts';
import { mean, populationStd, unbiasedStd } from '../algorithms/statistics.ts';
import { countOnes, type TrainingSequence } from '../algorithms/training-sequence.ts';
import { filterSettings, hasPreferenceLoss } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';
import { checkComponents, type Metrics, trainedReturn } from './episode-metrics.ts';
import {
  type ExperienceSettings,
  experienceSettings,
  type KeptEpisode,
  trainingSequences,
} from './experience.ts';
import { episodeEntropy, type LaterScores, type SampleScores } from './scoring.ts';

/** Scores up to this size count as zero: all episodes of the group went alike. */
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
interface FilterGroup {
  /** Total rewards, format penalties included. */
  readonly rewards: readonly number[];
  /** Mean entropy over each episode's sampled tokens; needed by the entropy scores. */
  readonly entropies?: readonly number[];
  /** Sampled tokens of each episode; needed by the score `length`. */
  readonly lengths?: readonly number[];
  /** Share of each episode in the group, summing to 1; absent: all alike. */
  readonly shares?: readonly number[];
}

interface FilterResult {
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

/** List, logged name and statistic of each score. */
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
 * SNR-adaptive filtering: keeps the groups with episodes that carry a learning signal. Groups are kept or dropped
 * whole. A group's score is a statistic over its episodes (std unbiased; 0 for a single episode). Empty groups are
 * rejected. Source: RAGEN V2 `rollout_filter.py`, which calls reward_std `reward_variance` and reward_mean `reward`.
 * @throws RangeError for an unknown strategy, or when a group lacks the data for its score
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

const STD_CV = 'rollout/in_group_reward_std_cv';

/** Groups of one collection after the filter. */
export interface Filtered {
  /** The groups that are kept, whole, in their order. */
  readonly kept: readonly (readonly KeptEpisode[])[];
  /** Number of groups before the filter. */
  readonly groups: number;
  /** Mean in-group std of the returns before filtering; 0 for groups of one. */
  readonly groupStd: number;
  readonly metrics: Metrics;
  /** Every group with the filter's input, in their order. */
  readonly scored: readonly ScoredGroup[];
}

/** A group before the filter. */
export interface ScoredGroup {
  readonly episodes: readonly Episode[];
  readonly score: number;
  /** Unbiased standard deviation of the returns; 0 for groups of one. */
  readonly std: number;
}

/** The episodes of the groups that are kept, in their order. */
export function keptEpisodes({ kept }: Filtered): Episode[] {
  return kept.flat().map(({ episode }) => episode);
}

/**
 * Normalizes the returns of a collection and keeps the groups that are worth training on.
 * @param scoresof all samples, where the filter uses entropy
 */
export function filterEpisodes(
  episodes: readonly Episode[],
  settings: RunSettings,
  scores?: SampleScores,
): Filtered {
  const prefixed = episodes.filter(({ prefix }) => prefix);
  if (prefixed.length === 0) return filterAlike(episodes, settings, scores);
  // Prefixed groups are chosen for a large spread; compared with them the others would be left out.
  const plain = filterAlike(
    episodes.filter(({ prefix }) => !prefix),
    settings,
    scores,
  );
  const apart = filterAlike(prefixed, settings, scores);
  const merged = mergeFiltered([plain, apart]);
  const ratio = 'rollout/filter_kept_ratio';
  return {
    ...merged,
    groupStd: plain.groupStd,
    metrics: { ...merged.metrics, ...plain.metrics, 'prefix/filter_kept_ratio': apart.metrics[ratio] },
  };
}

function filterAlike(episodes: readonly Episode[], settings: RunSettings, scores?: SampleScores): Filtered {
  const groups = [...Map.groupBy(episodes, episode => episode.groupId).values()];
  const { reward_components: weights } = settings.algorithm;
  checkComponents(episodes, weights);
  const returnOf = (episode: Episode) => trainedReturn(episode, weights);
  const filtered = filterGroups(
    groups.map(group => ({
      rewards: group.map(returnOf),
      lengths: group.map(episode =>
        samplesOf(episode).reduce((sum, sample) => sum + countOnes(sample.lossMask), 0),
      ),
      ...(group[0].nodes ? { shares: leafShares(group.map(({ nodes }) => nodes!.at(-1)!)) } : {}),
      ...(scores ? { entropies: group.map(episode => episodeEntropy(episode, scores)) } : {}),
    })),
    filterSettings(settings),
  );
  const all = new Map(allEpisodes(episodes, settings).map(kept => [kept.episode, kept]));
  const stds = groups.map(group => (group.length > 1 ? unbiasedStd(group.map(returnOf)) : 0));
  return {
    kept: filtered.kept.map(position => groups[position].map(episode => all.get(episode)!)),
    groups: groups.length,
    groupStd: groups.length === 0 ? 0 : mean(stds),
    metrics: { ...filtered.metrics, [STD_CV]: variation(stds) },
    scored: groups.map((episodes, i) => ({ episodes, score: filtered.scores[i], std: stds[i] })),
  };
}

/** Several collections of one iteration as one: counts are summed, means weighted by their numbers of groups. */
export function mergeFiltered(rounds: readonly Filtered[]): Filtered {
  if (rounds.length === 1) return rounds[0];
  const groups = rounds.reduce((sum, round) => sum + round.groups, 0);
  const kept = rounds.flatMap(round => round.kept);
  const weighted = (pick: (round: Filtered) => number, weight: (round: Filtered) => number) => {
    const whole = rounds.reduce((sum, round) => sum + weight(round), 0);
    return whole === 0 ? 0 : rounds.reduce((sum, round) => sum + weight(round) * pick(round), 0) / whole;
  };
  const metrics: Metrics = {};
  for (const name of Object.keys(rounds[0].metrics)) {
    const weight = name.startsWith('rollout/chosen_')
      ? (round: Filtered) => round.kept.length
      : (round: Filtered) => round.groups;
    metrics[name] = weighted(round => round.metrics[name], weight);
  }
  for (const name of ['rollout/filter_kept_count', 'rollout/filter_zero_count']) {
    metrics[name] = rounds.reduce((sum, round) => sum + round.metrics[name], 0);
  }
  const scored = rounds.flatMap(round => round.scored);
  metrics[STD_CV] = variation(scored.map(({ std }) => std));
  return {
    kept,
    groups,
    metrics,
    scored,
    groupStd: weighted(
      round => round.groupStd,
      round => round.groups,
    ),
  };
}

/** Episodes with their normalized returns, for training without a filter. */
export function allEpisodes(episodes: readonly Episode[], { algorithm }: RunSettings): KeptEpisode[] {
  const { reward_normalization: normalization, reward_scale: scale } = algorithm;
  if (normalization.method === 'identity') return episodes.map(episode => ({ episode }));
  const rewards = episodes.map(episode => ({
    reward: scale * trainedReturn(episode, algorithm.reward_components),
    groupId: episode.groupId,
    tag: episode.tag,
  }));
  const values = normalizeRewards(rewards, normalization);
  return episodes.map((episode, i) => ({ episode, normalized: values[i] }));
}

/** Coefficient of variation: population standard deviation / mean; 0 where the mean is. */
function variation(values: readonly number[]): number {
  const center = values.length === 0 ? 0 : mean(values);
  return center === 0 ? 0 : populationStd(values) / center;
}

interface SequenceParts extends LaterScores {
  /** Ids of the tokens that actions are made of, per tag. */
  readonly actionTokens: ReadonlyMap<string, ReadonlySet<number>>;
}

/**
 * Kept episodes as sequences: advantages estimated, and scaled by the share of groups that were kept. Of these sequences
 * the update learns from the share `algorithm.sample_share` with the largest advantages.
 */
export function keptSequences(
  filtered: Filtered,
  settings: RunSettings,
  parts: SequenceParts,
): TrainingSequence[] {
  if (hasPreferenceLoss(settings)) return pairedSequences(filtered, settings, parts);
  const { filter } = settings.algorithm;
  const scale = lossScale(
    filter.loss_scaling,
    filtered.groups === 0 ? 0 : filtered.kept.length / filtered.groups,
  );
  const all = trainingSequences(
    filtered.kept.flat(),
    experienceSettings(settings, parts.actionTokens),
    parts,
  );
  return largestAdvantages(all, settings.algorithm.sample_share).map(sequence => scaled(sequence, scale));
}

/** The share of the sequences with the largest mean |advantage| over trained tokens, in their order; at least one. */
function largestAdvantages(sequences: TrainingSequence[], share: number): TrainingSequence[] {
  if (share === 1) return sequences;
  const sizes = sequences.map(({ lossMask, advantages, weight = 1 }) => {
    const sum = advantages.reduce((total, a, t) => (lossMask[t] ? total + Math.abs(a) : total), 0);
    return (weight * sum) / Math.max(1, countOnes(lossMask));
  });
  const bySize = sequences.map((_, i) => i).sort((i, j) => sizes[j] - sizes[i]);
  const kept = new Set(bySize.slice(0, Math.ceil(share * sequences.length)));
  return sequences.filter((_, i) => kept.has(i));
}

/**
 * Pairs of kept episodes as sequences, chosen before rejected. Pairs with an episode of several sequences are left out.
 */
function pairedSequences(
  { kept }: Filtered,
  settings: RunSettings,
  parts: SequenceParts,
): TrainingSequence[] {
  // Pairs have no advantages: an episode alone could not be whitened or compared.
  const experience: ExperienceSettings = {
    ...experienceSettings(settings, parts.actionTokens),
    advantage: 'reinforce_pp',
    whiten: false,
  };
  return preferencePairs(kept, settings).flatMap(({ chosen, rejected }) => {
    const [first, second] = [chosen, rejected].map(one => trainingSequences([one], experience, parts));
    return first.length === 1 && second.length === 1 ? [first[0], second[0]] : [];
  });
}

/** Two episodes from one start, one better than the other. */
interface PreferencePair {
  readonly chosen: KeptEpisode;
  readonly rejected: KeptEpisode;
}

/**
 * The best and the worst episode of each group by their returns, penalties included; the first among equals. Groups
 * with a gap of at most `algorithm.preference_gap` between the two have no pair.
 */
function preferencePairs(
  groups: readonly (readonly KeptEpisode[])[],
  { algorithm }: Pick<RunSettings, 'algorithm'>,
): PreferencePair[] {
  return groups.flatMap(group => {
    const returns = group.map(({ episode }) => trainedReturn(episode, algorithm.reward_components));
    const [best, worst] = [Math.max(...returns), Math.min(...returns)];
    if (!(best - worst > algorithm.preference_gap)) return [];
    return [{ chosen: group[returns.indexOf(best)], rejected: group[returns.indexOf(worst)] }];
  });
}

/**
 * Factor on the advantages of a filtered batch, so that a step on few groups moves less than one on all of them: none 1
 * · linear kept ratio · sqrt √(kept ratio). Regularizers and value loss are unaffected. Source: RAGEN V2
 * `filter_loss_scaling`.
 * @throws RangeError for an unknown mode, listing the valid ones
 */
export function lossScale(mode: FilterLossScaling, keptRatio: number): number {
  switch (mode) {
    case 'none':
      return 1;
    case 'linear':
      return keptRatio;
    case 'sqrt':
      return Math.sqrt(keptRatio);
    default:
      throw new RangeError(`no loss scaling "${mode}"; choose one of ${FILTER_LOSS_SCALINGS.join(', ')}`);
  }
}

function scaled(sequence: TrainingSequence, factor: number): TrainingSequence {
  if (factor === 1) return sequence;
  return { ...sequence, advantages: sequence.advantages.map(advantage => factor * advantage) };
}
