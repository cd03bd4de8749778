import { isAlike } from '../../../shared/run-folder/episode-filter.ts';
import { countLossTokens, type LossCounts } from '../../algorithms/losses/aggregation.ts';
import type { Aggregation } from '../../algorithms/losses/settings.ts';
import { LOSS_COMPONENTS, type LossComponent } from '../../algorithms/losses/update-loss.ts';
import { mean, unbiasedStd } from '../../algorithms/statistics.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import { lossSettings } from '../../config/derived.ts';
import type { RunSettings } from '../../config/settings.ts';
import { type Metrics, trainedReturn } from '../../data/episode-metrics.ts';
import type { GradientDecomposition, Policy } from '../../policy/policy.ts';
import { type Episode, samplesOf } from '../../rollout/episode.ts';
import type { MetricTable } from '../../tracking/tracker.ts';

/** A pass of the decomposition: its bucket, and the counts that its loss was averaged over. */
interface MeasuredCell {
  readonly bucket: number;
  readonly counts: LossCounts;
  /** True for a single group, with a gradient that enters the signal-to-noise ratio. */
  readonly single: boolean;
}

/** A weighted sum of measured gradients, by their indices. */
type Combination = ReadonlyMap<number, number>;

const LOSS_NAMES: { readonly [component in LossComponent]: string } = {
  task: 'policy',
  entropy: 'entropy',
  kl: 'kl',
};

/**
 * Combines the gradients of cells to those of buckets and of all. A loss is a sum over tokens divided by counts, so the
 * gradient of a union of cells is the sum of theirs weighted by their shares of its counts: nothing is computed twice.
 */
export class GradientGeometry {
  readonly #cells: readonly MeasuredCell[];
  readonly #measured: GradientDecomposition;
  readonly #aggregation: Aggregation;

  /** @param measured of the cells, in their order */
  constructor(cells: readonly MeasuredCell[], measured: GradientDecomposition, aggregation: Aggregation) {
    this.#cells = cells;
    this.#measured = measured;
    this.#aggregation = aggregation;
  }

  /**
   * Metrics of a bucket's gradients, without a prefix; of all groups where it is undefined.
   *
   * `<component>` is the global L2 norm of the gradient of that component of the loss, as if the bucket were the whole
   * mini-batch; with `per_sample/<component>` and `per_token/<component>` (the norm divided by counts) and `loss/<part>`.
   * A component that is turned off has 0.
   *
   * - `task_to_reg` ‖g^task‖ / ‖g^entropy + g^kl‖
   * - `share/<component>` ⟨w_b g_b, g_all⟩ / ‖g_all‖²; sums to 1 over buckets, negative where the bucket pulls the other way
   * - `cosine/<component>` cos(g_b, g_all)
   * - `snr` ‖mean of the groups' task gradients‖² / their variance, of two measured groups at least
   *
   * What would divide by 0 is left out.
   * @param sizes sequences and trained tokens of the bucket
   */
  metrics(
    bucket: number | undefined,
    sizes: { readonly sequences: number; readonly tokens: number },
  ): Record<string, number> {
    const members = this.#members(bucket);
    const metrics: Record<string, number> = {};
    let total = 0;
    for (const component of LOSS_COMPONENTS) {
      const own = this.#combined(component, members);
      const norm = this.#norm(own);
      const loss = [...own].reduce((sum, [i, weight]) => sum + weight * this.#measured.gradients[i].loss, 0);
      total += loss;
      metrics[component] = norm;
      metrics[`per_sample/${component}`] = norm / sizes.sequences;
      metrics[`per_token/${component}`] = norm / sizes.tokens;
      metrics[`loss/${LOSS_NAMES[component]}`] = loss;
      if (bucket !== undefined) Object.assign(metrics, this.#againstAll(component, members, own));
    }
    metrics['loss/total'] = total;
    const regularizer = this.#norm(
      new Map([...this.#combined('entropy', members), ...this.#combined('kl', members)]),
    );
    if (regularizer > 0) metrics.task_to_reg = metrics.task / regularizer;
    return { ...metrics, ...this.#signalToNoise(members) };
  }

  #againstAll(
    component: LossComponent,
    members: readonly number[],
    own: Combination,
  ): Record<string, number> {
    const everyone = this.#members(undefined);
    const all = this.#combined(component, everyone);
    const squared = this.#inner(all, all);
    if (!(squared > 0)) return {};
    const inner = this.#inner(own, all);
    const weight = this.#count(component, members) / this.#count(component, everyone);
    const norm = this.#norm(own);
    return {
      [`share/${component}`]: (weight * inner) / squared,
      ...(norm > 0 ? { [`cosine/${component}`]: inner / (norm * Math.sqrt(squared)) } : {}),
    };
  }

  #signalToNoise(members: readonly number[]): Record<string, number> {
    const groups = members.filter(cell => this.#cells[cell].single);
    if (groups.length < 2) return {};
    const gradients = groups.map(cell => this.#index('task', cell));
    const average: Combination = new Map(gradients.map(index => [index, 1 / groups.length]));
    const signal = this.#inner(average, average);
    const squares = gradients.reduce((sum, index) => sum + this.#product(index, index), 0);
    const noise = (squares - groups.length * signal) / (groups.length - 1);
    return noise > 0 ? { snr: signal / noise } : {};
  }

  #members(bucket: number | undefined): number[] {
    return this.#cells.flatMap((cell, i) => (bucket === undefined || cell.bucket === bucket ? [i] : []));
  }

  /** The gradient of a union of cells; empty where the component is off. */
  #combined(component: LossComponent, members: readonly number[]): Combination {
    const whole = this.#count(component, members);
    return new Map(
      members.flatMap(cell => {
        const index = this.#index(component, cell);
        return index === -1 || whole === 0 ? [] : [[index, this.#count(component, [cell]) / whole] as const];
      }),
    );
  }

  /** Divisor of the component's loss over these cells. */
  #count(component: LossComponent, members: readonly number[]): number {
    const byTokens = this.#aggregation === 'token_mean';
    return members.reduce((sum, cell) => {
      const { tokens, sequences, entropyTokens, entropySequences } = this.#cells[cell].counts;
      if (component === 'entropy') return sum + (byTokens ? entropyTokens : entropySequences);
      return sum + (byTokens ? tokens : sequences);
    }, 0);
  }

  #index(component: LossComponent, cell: number): number {
    return this.#measured.gradients.findIndex(
      gradient => gradient.batch === cell && gradient.component === component,
    );
  }

  #norm(combination: Combination): number {
    return Math.sqrt(Math.max(0, this.#inner(combination, combination)));
  }

  #inner(a: Combination, b: Combination): number {
    let sum = 0;
    for (const [i, x] of a) for (const [j, y] of b) sum += x * y * this.#product(i, j);
    return sum;
  }

  #product(i: number, j: number): number {
    return this.#measured.products[i * this.#measured.gradients.length + j];
  }
}

/** A group of the batch: the spread of its returns and the positions of its sequences. */
interface GradientGroup {
  readonly groupId: number;
  /** Standard deviation of its episodes' returns before the filter; 0 for a group of one. */
  readonly rewardStd: number;
  readonly sequences: readonly number[];
}

/** Groups of similar spread that are measured together. */
interface GradientBucket {
  /** `bucket_1` (smallest spread) to `bucket_6`, and `all`. */
  readonly name: string;
  readonly groups: readonly GradientGroup[];
}

type BucketMode = 'quantile' | 'fixed_rv';

/** Lower borders of the buckets of `fixed_rv`. */
const FIXED_BORDERS = [0, 1, 2, 3, 4, 5];

/**
 * Groups sorted by the spread of their returns, ties by their number, in buckets. `quantile`: as many as requested, or as groups
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

/** Groups measured in one pass; all results are sums of their gradients. */
interface GradientCell {
  /** Which of the buckets. */
  readonly bucket: number;
  readonly groups: readonly GradientGroup[];
}

/**
 * Splits buckets so that every sequence is in one pass: up to `singles` groups, evenly over the order of spread, are
 * separate cells, and the rest of each bucket is another.
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
 * Gradients of task, entropy and KL separately, of each bucket of groups of similar spread and of all, under a prefix
 * such as `grad_norm`. No step is taken.
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
  return [...Map.groupBy(episodes, episode => episode.groupId)].map(([groupId, members]) => ({
    groupId,
    rewardStd: members.length > 1 ? unbiasedStd(members.map(returnOf)) : 0,
    sequences: members.flatMap(episode => places.get(episode)!),
  }));
}
