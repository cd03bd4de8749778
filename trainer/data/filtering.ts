import { leafShares } from '../algorithms/advantages/tree/tree.ts';
import { filterGroups } from '../algorithms/filters/rollout-filter.ts';
import { normalizeRewards } from '../algorithms/rewards/normalization.ts';
import { mean, populationStd, unbiasedStd } from '../algorithms/statistics.ts';
import { countOnes } from '../algorithms/training-sequence.ts';
import { filterSettings } from '../config/derived.ts';
import type { RunSettings } from '../config/settings.ts';
import { type Episode, samplesOf } from '../rollout/episode.ts';
import { groupBy } from './episode-metrics.ts';
import type { KeptEpisode } from './experience.ts';
import type { Metrics } from './metrics.ts';
import { checkComponents, trainedReturn } from './reward-components.ts';
import { episodeEntropy, type SampleScores } from './scoring.ts';

const STD_CV = 'rollout/in_group_reward_std_cv';

/** Groups of one collection after the filter. */
export interface Filtered {
  /** The groups that are kept, whole, in their order. */
  readonly kept: readonly (readonly KeptEpisode[])[];
  /** Groups that there were. */
  readonly groups: number;
  /** Mean in-group std of the returns before filtering; 0 for groups of one. */
  readonly groupStd: number;
  readonly metrics: Metrics;
  /** Every group with what the filter went by, in their order. */
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
  // Prefixed groups are chosen to spread: next to them the others would be left out.
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
  const groups = [...groupBy(episodes, episode => episode.groupId).values()];
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

/** Several collections of one iteration as one: counts added up, means weighted by the groups they are over. */
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

/** Episodes with their normalized returns, as they are trained on without a filter. */
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
