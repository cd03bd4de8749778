import { countLossTokens } from '../../algorithms/losses/aggregation.ts';
import { unbiasedStd } from '../../algorithms/statistics.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import { lossSettings } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { groupBy } from '../../data/episode-metrics.ts';
import type { Metrics } from '../../data/metrics.ts';
import { trainedReturn } from '../../data/reward-components.ts';
import type { Policy } from '../../policy/policy.ts';
import { type Episode, samplesOf } from '../../rollout/episode.ts';
import type { MetricTable } from '../../tracking/tracker.ts';
import { bucketMetrics, type GradientGroup, planBuckets, planCells } from './gradient-buckets.ts';
import { GradientGeometry } from './gradient-metrics.ts';

export interface DecompositionParts {
  readonly policy: Pick<Policy, 'decomposeGradients'>;
  readonly settings: RunSettings;
}

/** Input of the decomposition: whole groups of episodes and their training sequences. */
export interface DecomposedBatch {
  readonly episodes: readonly Episode[];
  /** In the order of episodes and their samples, without samples that have no trained token. */
  readonly sequences: readonly TrainingSequence[];
}

export interface DecompositionResult {
  readonly metrics: Metrics;
  /** `<prefix>/<bucket>/group_rv_table`: the groups of each bucket with the spread of their returns. */
  readonly tables: { readonly [name: string]: MetricTable };
}

/**
 * Gradients of task, entropy and KL apart, of each bucket of groups of like spread and of all, under a prefix such as `grad_norm`.
 * No step is taken.
 */
export async function decomposeGradients(
  { policy, settings }: DecompositionParts,
  { episodes, sequences }: DecomposedBatch,
  prefix: string,
): Promise<DecompositionResult> {
  const { buckets: count, bucket_mode: mode, snr_groups } = settings.diagnostics.gradients;
  const loss = lossSettings(settings);
  const groups = gradientGroups(episodes, episode =>
    trainedReturn(episode, settings.algorithm.reward_components),
  );
  if (groups.length === 0) return { metrics: {}, tables: {} };
  const buckets = planBuckets(groups, { count, mode });
  const cells = planCells(buckets, snr_groups)
    .map(cell => {
      const members = cell.groups.flatMap(group => group.sequences).map(index => sequences[index]);
      return {
        bucket: cell.bucket,
        single: snr_groups > 0 && cell.groups.length === 1,
        counts: countLossTokens(members),
        sequences: members,
      };
    })
    .filter(({ counts }) => counts.tokens > 0);
  const { temperature } = settings.rollout;
  const measured = await policy.decomposeGradients(cells, { loss, temperature });
  const geometry = new GradientGeometry(cells, measured, loss.aggregation);
  const metrics: Metrics = {};
  const tables: { [name: string]: MetricTable } = {};
  const whole = [{ name: 'all', groups: buckets.flatMap(bucket => bucket.groups) }, ...buckets];
  whole.forEach((bucket, i) => {
    const members = bucket.groups.flatMap(group => group.sequences).map(index => sequences[index]);
    const tokens = members.reduce((sum, { lossMask }) => sum + countOnes(lossMask), 0);
    const sizes = { sequences: members.length, tokens };
    Object.assign(metrics, bucketMetrics(prefix, bucket, sequences.length));
    if (members.length > 0) {
      const found = geometry.metrics(i === 0 ? undefined : i - 1, sizes);
      for (const [name, value] of Object.entries(found)) metrics[`${prefix}/${bucket.name}/${name}`] = value;
    }
    tables[`${prefix}/${bucket.name}/group_rv_table`] = {
      columns: ['group', 'std'],
      rows: bucket.groups.map(({ groupId, rewardStd }) => [groupId, rewardStd]),
    };
  });
  return { metrics, tables };
}

/** Groups with the positions of their sequences, which are in the order of episodes and samples. */
function gradientGroups(
  episodes: readonly Episode[],
  returnOf: (episode: Episode) => number,
): GradientGroup[] {
  const places = new Map<Episode, number[]>();
  let next = 0;
  for (const episode of episodes) {
    const trained = samplesOf(episode).filter(({ lossMask }) => countOnes(lossMask) > 0);
    places.set(
      episode,
      trained.map(() => next++),
    );
  }
  return [...groupBy(episodes, episode => episode.groupId)].map(([groupId, members]) => ({
    groupId,
    rewardStd: members.length > 1 ? unbiasedStd(members.map(returnOf)) : 0,
    sequences: members.flatMap(episode => places.get(episode)!),
  }));
}
