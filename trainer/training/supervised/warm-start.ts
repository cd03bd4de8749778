import { DEFAULT_LOSS_SETTINGS, type LossSettings } from '../../algorithms/losses/settings.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { RunSettings } from '../../config/settings.ts';
import type { Demonstration } from '../../data/demonstrations.ts';
import type { Metrics } from '../../data/metrics.ts';
import { samplingMask } from '../../data/token-weights.ts';
import type { Policy } from '../../policy/policy.ts';
import { mixSeed, PURPOSE } from '../../rollout/seeds.ts';
import { learningRateAt, splitEvenly, updatePolicy } from '../update/update.ts';
import type { WarmStartPosition } from './warm-start-progress.ts';

export type WarmStartSettings = NonNullable<RunSettings['warm_start']>;

/** Negative log-likelihood of the demonstrated responses under the mask of sampling, averaged over their tokens. */
const SUPERVISED_LOSS: LossSettings = {
  ...DEFAULT_LOSS_SETTINGS,
  policy: 'cross_entropy',
  aggregation: 'token_mean',
  entropyCoefficient: 0,
};

export interface WarmStartRun {
  readonly seed: number;
  readonly signal: AbortSignal;
  /** Position to continue from; the beginning when absent. */
  readonly start?: WarmStartPosition;
  /** Called after each optimizer step with the steps done and their total. */
  onUpdate?(done: number, total: number): void;
  /** Called with the mean loss of each epoch. */
  onEpoch?(epoch: number, metrics: Metrics): void | Promise<void>;
  /** Called with the position after each epoch but the last, and when it stops. */
  keep?(position: WarmStartPosition): Promise<void>;
}

/**
 * Supervised learning on demonstrations: AdamW with a warm-up and a cosine, for several epochs in separate orders. From
 * a kept position it continues as if it had never stopped.
 * @throws the signal's reason when it is aborted, before the next optimizer step
 */
export async function warmStart(
  policy: Pick<Policy, 'update'>,
  demonstrations: readonly Demonstration[],
  settings: WarmStartSettings,
  run: WarmStartRun,
): Promise<void> {
  const trained = demonstrations.filter(({ lossMask }) => countOnes(lossMask) > 0).map(supervisedSequence);
  const perEpoch = splitEvenly(trained, settings.batch_size).length;
  let updates = run.start?.updates ?? 0;
  let epochMetrics = [...(run.start?.epochMetrics ?? [])];
  const firstEpoch = perEpoch === 0 ? 0 : Math.floor(updates / perEpoch);
  for (let epoch = firstEpoch; epoch < settings.epochs; epoch++) {
    const learned = [...epochMetrics].values();
    const rated = {
      update: async (batch: Parameters<Policy['update']>[0], update: Parameters<Policy['update']>[1]) => {
        const { value: before } = learned.next();
        if (before) return before;
        if (run.signal.aborted) {
          await run.keep?.({ updates, epochMetrics });
          throw run.signal.reason;
        }
        const learningRate = learningRateAt(
          {
            peak: settings.learning_rate,
            warmup: settings.warmup_steps,
            total: settings.epochs * perEpoch,
            decay: 'cosine',
            finalShare: settings.final_share,
          },
          updates,
        );
        const optimizer = { ...update.optimizer, learningRate };
        const metrics = await policy.update(batch, { ...update, optimizer });
        updates++;
        epochMetrics.push(metrics);
        run.onUpdate?.(updates, settings.epochs * perEpoch);
        return metrics;
      },
    };
    const { metrics } = await updatePolicy(rated, trained, {
      settings: {
        loss: SUPERVISED_LOSS,
        temperature: 1,
        optimizer: {
          learningRate: 0,
          beta1: settings.beta1,
          beta2: settings.beta2,
          epsilon: 1e-8,
          weightDecay: settings.weight_decay,
          clipNorm: settings.clip_norm,
        },
      },
      epochs: 1,
      miniBatch: settings.batch_size,
      seed: mixSeed(run.seed, PURPOSE.warmStart, epoch),
    });
    epochMetrics = [];
    await run.onEpoch?.(epoch + 1, metrics);
    if (epoch + 1 < settings.epochs) await run.keep?.({ updates, epochMetrics });
  }
}

function supervisedSequence({ tokenIds, lossMask, allowed }: Demonstration): TrainingSequence {
  const { length } = tokenIds;
  return {
    tokenIds,
    lossMask,
    ...samplingMask({ allowed }),
    logProbs: new Float32Array(length),
    advantages: new Float32Array(length),
  };
}
