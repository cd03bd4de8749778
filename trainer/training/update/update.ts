import { trainerLog } from '../../../shared/log.ts';
import { Random } from '../../../shared/random.ts';
import { batchMetrics } from '../../algorithms/losses/batch-metrics.ts';
import type { Metrics } from '../../data/metrics.ts';
import { averageRows } from '../../data/metrics.ts';
import { countOnes } from '../../data/sequences/loss-mask.ts';
import type { TrainingSequence } from '../../data/sequences/training-sequence.ts';
import type { Policy, UpdateSettings } from '../../policy/policy.ts';
import { mixSeed } from '../../rollout/seeds.ts';
import { dump } from '../../tensor/runtime/dump.ts';
import { shuffledPairs, withPartners } from './preference-batches.ts';

export interface UpdatePlan {
  readonly settings: UpdateSettings;
  /** Passes over the batch, each in another order. */
  readonly epochs: number;
  /** Sequences of one optimizer step; the batch is cut into steps of nearly equal size, none larger. */
  readonly miniBatch: number;
  /** Seeds the orders. */
  readonly seed: number;
  /** Where sequences stand in pairs, chosen before rejected, that stay together: scores them before each step. */
  readonly pairScorer?: Pick<Policy, 'score'>;
  /** No step follows one whose `actor/ppo_kl` is above this. */
  readonly targetKl?: number;
}

export interface UpdateResult {
  /** Means over the optimizer steps; what depends on the batch alone, of the whole batch. */
  readonly metrics: Metrics;
  readonly steps: number;
  readonly trainedTokens: number;
}

/**
 * Runs the optimizer steps of one iteration. An empty batch changes nothing; nor does a step in which nothing weighs. With a
 * target KL `actor/kl_stopped` is 1 where it ended the iteration early.
 */
export async function updatePolicy(
  policy: Pick<Policy, 'update'>,
  sequences: readonly TrainingSequence[],
  plan: UpdatePlan,
): Promise<UpdateResult> {
  const rows: Metrics[] = [];
  let trainedTokens = 0;
  let stopped = false;
  for (let epoch = 0; epoch < plan.epochs && !stopped; epoch++) {
    for await (const batch of miniBatches(sequences, plan, mixSeed(plan.seed, epoch))) {
      if (batch.every(({ weight }) => weight === 0)) continue;
      dump('batch', `epoch-${epoch}`, () => batch.map(sequenceLine).join(''));
      const metrics = await policy.update({ sequences: batch }, plan.settings);
      trainerLog().debug({ epoch, sequences: batch.length, ...metrics }, 'optimizer step');
      rows.push({ ...metrics });
      for (const sequence of batch) trainedTokens += countOnes(sequence.lossMask);
      stopped = plan.targetKl !== undefined && metrics['actor/ppo_kl'] > plan.targetKl;
      if (stopped) break;
    }
  }
  const whole = rows.length === 0 ? {} : batchMetrics(sequences, plan.settings.loss);
  const kl: Metrics = plan.targetKl === undefined ? {} : { 'actor/kl_stopped': stopped ? 1 : 0 };
  return { metrics: { ...averageRows(rows), ...whole, ...kl }, steps: rows.length, trainedTokens };
}

/** Mini-batches of an epoch, one made when the one before is learned. */
async function* miniBatches(
  sequences: readonly TrainingSequence[],
  { pairScorer, miniBatch, settings }: UpdatePlan,
  seed: number,
): AsyncGenerator<readonly TrainingSequence[]> {
  if (!pairScorer) {
    yield* splitEvenly(Random.fromSeed(seed).shuffle(sequences), miniBatch);
    return;
  }
  const pairs = shuffledPairs(sequences, seed);
  for (const part of splitEvenly(pairs, Math.max(1, Math.floor(miniBatch / 2)))) {
    yield await withPartners(pairScorer, part, settings.temperature);
  }
}

/** A sequence as a line of JSON, its arrays as lists; numbers that are not finite as texts. */
function sequenceLine(sequence: TrainingSequence): string {
  const number = (value: number) => (Number.isFinite(value) ? value : String(value));
  const plain = (_key: string, value: unknown) =>
    ArrayBuffer.isView(value) ? Array.from(value as Float32Array, number) : value;
  return `${JSON.stringify(sequence, plain)}\n`;
}

/** Cuts items into the fewest parts of at most `largest`, their sizes differing by one at most. */
export function splitEvenly<T>(items: readonly T[], largest: number): T[][] {
  const parts = Math.ceil(items.length / largest);
  return Array.from({ length: parts }, (_, i) =>
    items.slice(Math.floor((i * items.length) / parts), Math.floor(((i + 1) * items.length) / parts)),
  );
}
