import { trainerLog } from '../../../shared/log.ts';
import { Random } from '../../../shared/random.ts';
import { FILTER_FILLS, type FilterFill } from '../../algorithms/filters/settings.ts';
import { batchMetrics } from '../../algorithms/losses/batch-metrics.ts';
import { selectByCovariance } from '../../algorithms/losses/covariance/selection.ts';
import { ratioDenominator } from '../../algorithms/losses/inputs.ts';
import { policyLoss } from '../../algorithms/losses/registry.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { RunSettings } from '../../config/settings.ts';
import { averageRows, type Metrics } from '../../data/episode-metrics.ts';
import { samplingMask } from '../../data/token-weights.ts';
import type { OptimizerSettings, Policy, Score, UpdateMetrics, UpdateSettings } from '../../policy/policy.ts';
import { mixSeed } from '../../rollout/seeds.ts';
import { dump } from '../../tensor/runtime/dump.ts';

export interface UpdatePlan {
  readonly settings: UpdateSettings;
  /** Passes over the batch, each in another order. */
  readonly epochs: number;
  /** Sequences of one optimizer step; the batch is cut into steps of nearly equal size, none larger. */
  readonly miniBatch: number;
  /** Seeds the orders. */
  readonly seed: number;
  /** Scores sequences before each step, where the loss needs log-probabilities under the current weights. */
  readonly scorer?: Pick<Policy, 'score'>;
  /** Sequences come in pairs, chosen before rejected, that stay together. */
  readonly paired?: boolean;
  /** No step follows one with `actor/ppo_kl` above this. */
  readonly targetKl?: number;
}

export interface UpdateResult {
  /** Means over the optimizer steps; batch metrics cover the whole batch. */
  readonly metrics: Metrics;
  readonly steps: number;
  readonly trainedTokens: number;
}

/**
 * Runs the optimizer steps of one iteration. An empty batch, or a step without any weight, changes nothing. With a
 * target KL, `actor/kl_stopped` is 1 if it ended the iteration early.
 */
export async function updatePolicy(
  policy: Pick<Policy, 'update' | 'pipelined'>,
  sequences: readonly TrainingSequence[],
  plan: UpdatePlan,
): Promise<UpdateResult> {
  const rows: Metrics[] = [];
  let trainedTokens = 0;
  let stopped = false;
  // With a target or a scorer a step depends on the one before.
  const ahead = policy.pipelined && plan.targetKl === undefined && !plan.scorer ? 1 : 0;
  const underWay: { readonly metrics: Promise<UpdateMetrics>; readonly selection?: Metrics }[] = [];
  const finishOne = async () => {
    const { metrics, selection } = underWay.shift()!;
    const found = { ...selection, ...(await metrics) };
    trainerLog().debug({ ...found }, 'optimizer step');
    rows.push(found);
    stopped ||= plan.targetKl !== undefined && found['actor/ppo_kl'] > plan.targetKl;
  };
  for (let epoch = 0; epoch < plan.epochs && !stopped; epoch++) {
    for await (const { batch, selection } of miniBatches(sequences, plan, mixSeed(plan.seed, epoch))) {
      if (batch.every(({ weight }) => weight === 0)) continue;
      dump('batch', `epoch-${epoch}`, () => batch.map(sequenceLine).join(''));
      const metrics = policy.update({ sequences: batch }, plan.settings);
      // Awaited later.
      metrics.catch(() => {});
      underWay.push({ metrics, ...(selection ? { selection } : {}) });
      for (const sequence of batch) trainedTokens += countOnes(sequence.lossMask);
      if (underWay.length > ahead) await finishOne();
      if (stopped) break;
    }
  }
  while (underWay.length > 0) await finishOne();
  const whole = rows.length === 0 ? {} : batchMetrics(sequences, plan.settings.loss);
  const kl: Metrics = plan.targetKl === undefined ? {} : { 'actor/kl_stopped': stopped ? 1 : 0 };
  return { metrics: { ...averageRows(rows), ...whole, ...kl }, steps: rows.length, trainedTokens };
}

interface MiniBatch {
  readonly batch: readonly TrainingSequence[];
  /** Metrics of the token selection. */
  readonly selection?: Metrics;
}

/** Mini-batches of an epoch; each is prepared after the previous one is learned. */
async function* miniBatches(
  sequences: readonly TrainingSequence[],
  { scorer, paired, miniBatch, settings }: UpdatePlan,
  seed: number,
): AsyncGenerator<MiniBatch> {
  const random = Random.fromSeed(seed);
  if (scorer && paired) {
    const pairs = shuffledPairs(sequences, seed);
    for (const part of splitEvenly(pairs, Math.max(1, Math.floor(miniBatch / 2)))) {
      yield { batch: await withPartners(scorer, part, settings.temperature) };
    }
    return;
  }
  for (const batch of splitEvenly(random.shuffle(sequences), miniBatch)) {
    yield scorer && policyLoss(settings.loss.policy).selects
      ? await withSelection(scorer, batch, settings, random)
      : { batch };
  }
}

/** Marks the tokens that the loss treats separately, by their log-probabilities under the current weights. */
async function withSelection(
  scorer: Pick<Policy, 'score'>,
  batch: readonly TrainingSequence[],
  { loss, temperature }: UpdateSettings,
  random: Random,
): Promise<MiniBatch> {
  const trained = batch.filter(({ weight }) => weight !== 0);
  const scores = await scoreSequences(scorer, trained, temperature);
  const { selected, metrics } = selectByCovariance(
    trained.map((sequence, i) => ({
      lossMask: sequence.lossMask,
      advantages: sequence.advantages,
      logProbs: scores[i].logProbs,
      oldLogProbs: ratioDenominator(sequence, loss),
    })),
    loss,
    items => random.shuffle(items),
  );
  return {
    batch: trained.map((sequence, i) => ({ ...sequence, selected: selected[i] })),
    selection: metrics,
  };
}

/**
 * Sequences that fill whole mini-batches after filtering:
 *
 * - `none` and `refill` change nothing: with `refill`, missing groups were collected before
 * - `copy` repeats random sequences up to the next multiple of `multiple`; none is repeated twice before all are
 * - `delete` drops random sequences down to the last multiple; fewer than one multiple leaves nothing, and the update
 *   is skipped
 * - `pad` fills up to the next multiple with sequences of weight 0, which change neither loss nor averages
 *
 * Source: RAGEN V2 `adjust_batch`, `pad_batch.py`, `pending_batch.py`.
 * @throws RangeError for an unknown mode, listing the valid ones
 */
export function fillBatch(
  sequences: readonly TrainingSequence[],
  mode: FilterFill | 'none',
  multiple: number,
  random: Random,
): readonly TrainingSequence[] {
  const { length } = sequences;
  const extra = length === 0 ? 0 : (multiple - (length % multiple)) % multiple;
  switch (mode) {
    case 'none':
    case 'refill':
      return sequences;
    case 'copy': {
      const copies: TrainingSequence[] = [];
      while (copies.length < extra)
        copies.push(...random.shuffle([...sequences]).slice(0, extra - copies.length));
      return [...sequences, ...copies];
    }
    case 'delete': {
      const order = random.shuffle(sequences.map((_, i) => i));
      const kept = new Set(order.slice(0, length - (length % multiple)));
      return sequences.filter((_, i) => kept.has(i));
    }
    case 'pad': {
      const padding = Array.from({ length: extra }, (_, i) => ({ ...sequences[i % length], weight: 0 }));
      return [...sequences, ...padding];
    }
    default:
      throw new RangeError(`no fill mode "${mode}"; choose one of ${FILTER_FILLS.join(', ')}`);
  }
}

/** A sequence as a line of JSON, with arrays as lists and non-finite numbers as text. */
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

type Pair = readonly [chosen: TrainingSequence, rejected: TrainingSequence];

/** Sequences in pairs, chosen before rejected, in another order; pairs stay together. */
function shuffledPairs(sequences: readonly TrainingSequence[], seed: number): Pair[] {
  const pairs = Array.from(
    { length: sequences.length / 2 },
    (_, i): Pair => [sequences[2 * i], sequences[2 * i + 1]],
  );
  return Random.fromSeed(seed).shuffle(pairs);
}

/** Adds to each sequence of a pair its partner's log-ratio under the current weights, for preference losses. */
async function withPartners(
  policy: Pick<Policy, 'score'>,
  pairs: readonly Pair[],
  temperature: number,
): Promise<TrainingSequence[]> {
  const sequences = pairs.flat();
  const scores = await scoreSequences(policy, sequences, temperature);
  const ratios = sequences.map(({ lossMask, referenceLogProbs }, i) => {
    let sum = 0;
    for (let t = 0; t < lossMask.length; t++)
      if (lossMask[t]) sum += scores[i].logProbs[t] - referenceLogProbs![t];
    return sum;
  });
  return sequences.map((sequence, i) => ({
    ...sequence,
    // Partners are adjacent: 0 and 1, 2 and 3, …
    preference: { chosen: i % 2 === 0, partnerLogRatio: ratios[i ^ 1] },
  }));
}

/** Scores the trained tokens of sequences under the current weights. */
function scoreSequences(
  policy: Pick<Policy, 'score'>,
  sequences: readonly TrainingSequence[],
  temperature: number,
): Promise<Score[]> {
  const requests = sequences.map(({ tokenIds, lossMask, ...others }) => ({
    tokenIds,
    lossMask,
    ...samplingMask(others),
  }));
  return policy.score(requests, { temperature });
}

/** Shape of a learning rate over optimizer steps or iterations, all counted from 0. */
export interface Schedule {
  readonly peak: number;
  /** Units over which the rate rises linearly; the first unit already learns. */
  readonly warmup: number;
  /** Units in all. */
  readonly total: number;
  readonly decay: 'constant' | 'linear' | 'cosine';
  /** Rate after the last unit, as a share of the peak. */
  readonly finalShare: number;
}

/** Learning rate in unit `index`: linear warm-up to the peak, then the decay over what is left. */
export function learningRateAt(schedule: Schedule, index: number): number {
  const { peak, warmup, total, decay, finalShare } = schedule;
  if (index < warmup) return (peak * (index + 1)) / warmup;
  if (decay === 'constant') return peak;
  const progress = Math.min(1, (index - warmup) / Math.max(1, total - warmup));
  const left = decay === 'linear' ? 1 - progress : (1 + Math.cos(Math.PI * progress)) / 2;
  return peak * (finalShare + (1 - finalShare) * left);
}

/** The optimizer of an iteration, counted from 0; a critic's where its highest learning rate is given. */
export function optimizerSettings(
  { optimizer, training }: RunSettings,
  iteration: number,
  peak = optimizer.learning_rate,
): OptimizerSettings {
  return {
    learningRate: learningRateAt(
      {
        peak,
        warmup: optimizer.warmup_iterations,
        total: training.steps,
        decay: optimizer.decay,
        finalShare: optimizer.final_share,
      },
      iteration,
    ),
    beta1: optimizer.beta1,
    beta2: optimizer.beta2,
    epsilon: optimizer.epsilon,
    weightDecay: optimizer.weight_decay,
    clipNorm: optimizer.clip_norm,
    ...(optimizer.muon && { muon: optimizer.muon }),
  };
}
