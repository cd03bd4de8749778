import type { LossSettings } from '../algorithms/losses/settings.ts';
import { mean } from '../algorithms/statistics.ts';
import type { TrainingSequence } from '../data/sequences/training-sequence.ts';
import type { UpdateBatch } from '../policy/policy.ts';

/** A group of the batch: the spread of its rewards and where its sequences stand. */
export interface GradientGroup {
  readonly groupId: number;
  readonly rewardStd: number;
  readonly sequences: readonly number[];
}

/** A set of groups of similar spread whose gradient is measured on its own. */
export interface GradientBucket {
  /** `bucket_1` (smallest spread) to `bucket_6`, and `all`. */
  readonly name: string;
  readonly groupIds: readonly number[];
  readonly sequences: readonly number[];
  readonly metrics: Readonly<Record<string, number>>;
}

const BUCKETS = 6;

/**
 * Six equal parts of the groups by the spread of their rewards, the last with the remainder, and `all`. Buckets that
 * come out empty are left out. Their metrics are `grad_norm/<bucket>/{sample_count,sample_pct,group_count,
 * reward_std_mean,reward_std_min,reward_std_max}`.
 *
 * Source: RAGEN V2 `split_into_buckets` (mode quantile).
 */
export function planBuckets(groups: readonly GradientGroup[]): GradientBucket[] {
  const sorted = groups.toSorted((a, b) => a.rewardStd - b.rewardStd);
  const size = Math.floor(groups.length / BUCKETS);
  const parts = Array.from({ length: BUCKETS }, (_, i) =>
    sorted.slice(i * size, i === BUCKETS - 1 ? undefined : (i + 1) * size),
  );
  const total = countSequences(groups);
  return [
    bucket('all', groups, total),
    ...parts.map((part, i) => bucket(`bucket_${i + 1}`, part, total)),
  ].filter(({ sequences }) => sequences.length > 0);
}

function bucket(name: string, groups: readonly GradientGroup[], total: number): GradientBucket {
  const stds = groups.map(group => group.rewardStd);
  const count = countSequences(groups);
  return {
    name,
    groupIds: groups.map(group => group.groupId),
    sequences: groups.flatMap(group => group.sequences),
    metrics: {
      [`grad_norm/${name}/sample_count`]: count,
      [`grad_norm/${name}/sample_pct`]: count / total,
      [`grad_norm/${name}/group_count`]: groups.length,
      [`grad_norm/${name}/reward_std_mean`]: mean(stds),
      [`grad_norm/${name}/reward_std_min`]: Math.min(...stds),
      [`grad_norm/${name}/reward_std_max`]: Math.max(...stds),
    },
  };
}

function countSequences(groups: readonly GradientGroup[]): number {
  return groups.reduce((sum, group) => sum + group.sequences.length, 0);
}

/** Parts of the loss whose gradients are told apart. */
export type GradientComponent = (typeof GRADIENT_COMPONENTS)[number];
export const GRADIENT_COMPONENTS = ['task', 'entropy', 'kl'] as const;

/** Batch and settings of a backward pass that holds one component only; the value loss is off in all of them. */
export function componentPass(
  component: GradientComponent,
  batch: UpdateBatch,
  settings: LossSettings,
): { readonly batch: UpdateBatch; readonly settings: LossSettings } {
  const silent = (sequence: TrainingSequence): TrainingSequence => ({
    ...sequence,
    advantages: new Float32Array(sequence.advantages.length),
  });
  return {
    batch: component === 'task' ? batch : { sequences: batch.sequences.map(silent) },
    settings: {
      ...settings,
      entropyCoefficient: component === 'entropy' ? settings.entropyCoefficient : 0,
      kl: { ...settings.kl, coefficient: component === 'kl' ? settings.kl.coefficient : 0 },
      value: { ...settings.value, coefficient: 0 },
    },
  };
}

/**
 * `grad_norm/<bucket>/{<component>,per_sample/<component>,per_token/<component>,loss/<component>}` of one backward pass.
 * @param norm global norm of the gradient
 * @param sizes sequences and trained tokens of the bucket
 */
export function componentMetrics(
  bucketName: string,
  component: GradientComponent,
  measured: { readonly norm: number; readonly loss: number },
  sizes: { readonly sequences: number; readonly tokens: number },
): Record<string, number> {
  const prefix = `grad_norm/${bucketName}`;
  return {
    [`${prefix}/${component}`]: measured.norm,
    [`${prefix}/per_sample/${component}`]: measured.norm / sizes.sequences,
    [`${prefix}/per_token/${component}`]: measured.norm / sizes.tokens,
    [`${prefix}/loss/${component}`]: measured.loss,
  };
}
