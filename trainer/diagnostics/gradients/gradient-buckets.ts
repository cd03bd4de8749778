import { isAlike } from '../../../shared/run-folder/episode-filter.ts';
import { mean } from '../../algorithms/statistics.ts';

/** A group of the batch: the spread of its returns and where its sequences stand. */
export interface GradientGroup {
  readonly groupId: number;
  /** Standard deviation of its episodes' returns before the filter; 0 for a group of one. */
  readonly rewardStd: number;
  readonly sequences: readonly number[];
}

/** Groups of similar spread with gradients that are measured together. */
export interface GradientBucket {
  /** `bucket_1` (smallest spread) to `bucket_6`, and `all`. */
  readonly name: string;
  readonly groups: readonly GradientGroup[];
}

export type BucketMode = 'quantile' | 'fixed_rv';

/** Lower borders of the buckets of `fixed_rv`. */
const FIXED_BORDERS = [0, 1, 2, 3, 4, 5];

/**
 * Groups sorted by the spread of their returns, ties by their number, in buckets. `quantile`: as many as asked for, or as groups
 * where there are fewer, of equal size, the last with the remainder. `fixed_rv`: with borders at 0, 1, 2, 3, 4 and 5; those that
 * come out empty are left out.
 *
 * Source: RAGEN V2 `split_into_buckets`, which sorts ties at will.
 */
export function planBuckets(
  groups: readonly GradientGroup[],
  { count, mode }: { readonly count: number; readonly mode: BucketMode },
): GradientBucket[] {
  const sorted = groups.toSorted((a, b) => a.rewardStd - b.rewardStd || a.groupId - b.groupId);
  if (mode === 'fixed_rv') {
    return FIXED_BORDERS.map((low, i) => ({
      name: `bucket_${i + 1}`,
      groups: sorted.filter(
        ({ rewardStd }) => rewardStd >= low && rewardStd < (FIXED_BORDERS[i + 1] ?? Infinity),
      ),
    })).filter(bucket => bucket.groups.length > 0);
  }
  const buckets = Math.min(count, groups.length);
  const size = Math.floor(groups.length / buckets);
  return Array.from({ length: buckets }, (_, i) => ({
    name: `bucket_${i + 1}`,
    groups: sorted.slice(i * size, i === buckets - 1 ? undefined : (i + 1) * size),
  }));
}

/** Groups with one gradient, taken in one pass; all results are sums of these. */
export interface GradientCell {
  /** Which of the buckets. */
  readonly bucket: number;
  readonly groups: readonly GradientGroup[];
}

/**
 * Cuts buckets so that every sequence is passed once: up to `singles` groups, evenly over the order of spread, are cells by
 * themselves, and what is left of each bucket is another.
 */
export function planCells(buckets: readonly GradientBucket[], singles: number): GradientCell[] {
  const sorted = buckets.flatMap(({ groups }) => groups);
  const count = Math.min(singles, sorted.length);
  const single = new Set(
    Array.from({ length: count }, (_, i) => sorted[Math.floor(((i + 0.5) * sorted.length) / count)]),
  );
  return buckets.flatMap(({ groups }, bucket) => {
    const rest = groups.filter(group => !single.has(group));
    const alone = groups.filter(group => single.has(group));
    return [
      ...alone.map(group => ({ bucket, groups: [group] })),
      ...(rest.length > 0 ? [{ bucket, groups: rest }] : []),
    ];
  });
}

/**
 * `<prefix>/<bucket>/{sample_count,sample_pct,group_rv_count,zero_std_share,reward_std_mean,reward_std_min,reward_std_max}`.
 * @param total sequences of all buckets
 */
export function bucketMetrics(
  prefix: string,
  { name, groups }: GradientBucket,
  total: number,
): Record<string, number> {
  const stds = groups.map(group => group.rewardStd);
  const count = groups.reduce((sum, { sequences }) => sum + sequences.length, 0);
  const metrics = {
    sample_count: count,
    sample_pct: count / total,
    group_rv_count: groups.length,
    zero_std_share: stds.filter(isAlike).length / stds.length,
    reward_std_mean: mean(stds),
    reward_std_min: Math.min(...stds),
    reward_std_max: Math.max(...stds),
  };
  return Object.fromEntries(
    Object.entries(metrics).map(([metric, value]) => [`${prefix}/${name}/${metric}`, value]),
  );
}
