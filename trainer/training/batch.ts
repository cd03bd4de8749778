import { lossScale } from '../algorithms/filters/loss-scaling.ts';
import { filterGroups } from '../algorithms/filters/rollout-filter.ts';
import { normalizeRewards } from '../algorithms/rewards/normalization.ts';
import { mean, unbiasedStd } from '../algorithms/statistics.ts';
import type { TrainingSequence } from '../policy/policy.ts';
import { type Episode, episodeReturn, samplesOf } from '../rollout/episode.ts';
import { groupBy, type Metrics } from './episode-metrics.ts';
import { trainingSequences } from './experience.ts';
import type { RunSettings } from './settings.ts';
import { filterSettings } from './settings-derived.ts';
import { countOnes } from './update.ts';

/** What an iteration trains on. */
export interface Batch {
  readonly sequences: readonly TrainingSequence[];
  /** Groups that the filter kept. */
  readonly keptGroups: number;
  /** Mean in-group std of the returns before filtering; 0 for groups of one. */
  readonly groupStd: number;
  readonly metrics: Metrics;
}

/**
 * Episodes of an iteration as the batch to train on: returns normalised, groups filtered, advantages estimated.
 * @param actionTokens ids of the tokens that actions are made of, per tag
 */
export function makeBatch(
  episodes: readonly Episode[],
  settings: RunSettings,
  actionTokens: ReadonlyMap<string, ReadonlySet<number>>,
): Batch {
  const { algorithm } = settings;
  const { reward_normalization: normalization, reward_scale: scale, filter } = algorithm;
  const groups = [...groupBy(episodes, episode => episode.groupId).values()];
  const filtered = filterGroups(
    groups.map(group => ({
      rewards: group.map(episodeReturn),
      lengths: group.map(episode =>
        samplesOf(episode).reduce((sum, sample) => sum + countOnes(sample.mask), 0),
      ),
    })),
    filterSettings(settings),
  );
  const kept = filtered.kept.flatMap(position => groups[position]);
  const normalized = new Map<Episode, number>();
  if (normalization.method !== 'identity') {
    const rewards = episodes.map(episode => ({
      reward: scale * episodeReturn(episode),
      groupId: episode.groupId,
      tag: episode.tag,
    }));
    normalizeRewards(rewards, normalization).forEach((value, i) => {
      normalized.set(episodes[i], value);
    });
  }
  const weight = lossScale(
    filter.loss_scaling,
    groups.length === 0 ? 0 : filtered.kept.length / groups.length,
  );
  const sequences = trainingSequences(
    kept,
    {
      advantage: algorithm.advantage,
      gamma: algorithm.gamma,
      lambda: algorithm.lambda,
      turnLambda: algorithm.turn_lambda,
      highLevelGamma: algorithm.high_level_gamma,
      stepWeight: algorithm.step_weight,
      whiten: algorithm.whiten,
      rewardScale: scale,
      constrained: settings.rollout.constrained,
      ...(algorithm.entropy_on === 'actions' ? { entropyTokens: actionTokens } : {}),
    },
    normalized.size > 0 ? kept.map(episode => normalized.get(episode)!) : undefined,
  );
  const stds = groups.map(group => (group.length > 1 ? unbiasedStd(group.map(episodeReturn)) : 0));
  return {
    sequences: weight === 1 ? sequences : sequences.map(sequence => ({ ...sequence, weight })),
    keptGroups: filtered.kept.length,
    groupStd: groups.length === 0 ? 0 : mean(stds),
    metrics: { ...filtered.metrics },
  };
}
