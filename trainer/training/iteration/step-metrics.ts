import type { EndMeanings } from '../../../shared/run-folder/run-files.ts';
import { countOnes, type TrainingSequence } from '../../algorithms/training-sequence.ts';
import type { RunSettings } from '../../config/settings.ts';
import {
  batchMetrics,
  lengthMetrics,
  type Metrics,
  programMetrics,
  tagMetrics,
} from '../../data/episode-metrics.ts';
import { isBootstrapped } from '../../data/scoring.ts';
import { type Episode, episodeReturn, samplesOf } from '../../rollout/episode.ts';
import type { IntervalMeter } from '../../rollout/tally.ts';

interface SpeedParts {
  readonly settings: RunSettings;
  /** Number of weights. */
  readonly parameterCount: number;
  readonly busy: IntervalMeter;
}

/** When the parts of a step ended, in seconds on the clock. */
export interface StepTimes {
  readonly started: number;
  readonly collected: number;
  readonly prepared: number;
  /** When the update began. */
  readonly learning: number;
  readonly learned: number;
  readonly ended: number;
}

/** `timing_s/*` and the trainer's idle ratio. */
export function timingMetrics({
  started,
  collected,
  prepared,
  learning,
  learned,
  ended,
}: StepTimes): Metrics {
  return {
    'trainer/idle_ratio': (collected - started) / (ended - started),
    'timing_s/gen': collected - started,
    'timing_s/adv': prepared - collected,
    'timing_s/diagnostics': learning - prepared,
    'timing_s/update_actor': learned - learning,
    'timing_s/step': ended - started,
  };
}

/** Amount of work done in a step. */
export interface StepWork {
  readonly episodes: readonly Episode[];
  readonly sequences: readonly TrainingSequence[];
  /** Tokens. */
  readonly sampled: number;
  readonly trained: number;
}

/** `perf/*`: work per second. */
export function speedMetrics(
  parts: SpeedParts,
  { episodes, sequences, sampled, trained }: StepWork,
  { started, collected, learning, learned, ended }: StepTimes,
): Metrics {
  const seconds = ended - started;
  const sampling = parts.settings.rollout.asynchronous === null ? collected - started : seconds;
  return {
    'perf/policy_busy_ratio': parts.busy.takeShare(),
    'perf/tokens_per_second': sampled / sampling,
    'perf/train_tokens_per_second': learned > learning ? trained / (learned - learning) : 0,
    ...utilization(parts, episodes, sequences, seconds),
    'perf/throughput': (sampled + trained) / seconds,
  };
}

/** `train/*`: outcomes of the episodes. */
export function collectionMetrics(
  episodes: readonly Episode[],
  settings: RunSettings,
  ends?: EndMeanings,
): Metrics {
  const overall = batchMetrics(episodes);
  const { response_length, ...lengths } = lengthMetrics(episodes, settings.rollout.response_length);
  const members = Map.groupBy(episodes, episode => episode.tag);
  return {
    ...Object.fromEntries([...members].map(([tag, some]) => [`train/${tag}/episodes`, some.length])),
    ...Object.fromEntries(
      Object.entries(tagMetrics(episodes, ends)).map(([name, value]) => [`train/${name}`, value]),
    ),
    ...programMetrics(episodes),
    'train/success': overall.success,
    'train/return': overall.return,
    'train/truncated': share(episodes, ({ truncation }) => truncation !== undefined),
    'train/bootstrapped': share(episodes, episode => isBootstrapped(episode, settings)),
    frac_reward_zero_std: overall.frac_reward_zero_std,
    'train/response_length': response_length,
    ...lengths,
  };
}

/**
 * `perf/tflops`: 10¹² floating-point operations per second of a step, counted as 2 for each weight and token of the
 * episodes and 6 for each trained token, without attention; `perf/mfu`: their share of the machine's peak, where the
 * settings have it.
 */
function utilization(
  { settings, parameterCount }: SpeedParts,
  episodes: readonly Episode[],
  sequences: readonly TrainingSequence[],
  seconds: number,
): Metrics {
  let played = 0;
  for (const episode of episodes) for (const { tokenIds } of samplesOf(episode)) played += tokenIds.length;
  const trained = sequences.reduce((sum, { tokenIds }) => sum + tokenIds.length, 0);
  const operations = parameterCount * (2 * played + 6 * settings.algorithm.ppo_epochs * trained);
  const tflops = operations / seconds / 1e12;
  const { peak_tflops } = settings.tracking;
  return { 'perf/tflops': tflops, ...(peak_tflops === null ? {} : { 'perf/mfu': tflops / peak_tflops }) };
}

function share(episodes: readonly Episode[], which: (episode: Episode) => boolean): number {
  return episodes.filter(which).length / Math.max(1, episodes.length);
}

/** Tokens that the policy sampled. */
export function sampledTokens(episodes: readonly Episode[]): number {
  let tokens = 0;
  for (const episode of episodes) {
    for (const sample of samplesOf(episode)) tokens += countOnes(sample.lossMask);
  }
  return tokens;
}

/**
 * `critic/rewards/{mean,min,max}` of the returns of trained episodes and `critic/advantages/{mean,min,max}` of trained tokens,
 * as verl names them; nothing for an empty batch.
 */
export function batchStatistics(
  episodes: readonly Episode[],
  sequences: readonly TrainingSequence[],
): Metrics {
  const advantages = sequences.flatMap(({ advantages, lossMask, weight }) =>
    weight === 0 ? [] : Array.from(advantages).filter((_, t) => lossMask[t] === 1),
  );
  return {
    ...spread('critic/rewards', episodes.map(episodeReturn)),
    ...spread('critic/advantages', advantages),
  };
}

function spread(name: string, values: readonly number[]): Metrics {
  if (values.length === 0) return {};
  let [sum, min, max] = [0, Infinity, -Infinity];
  for (const value of values) {
    sum += value;
    min = Math.min(min, value);
    max = Math.max(max, value);
  }
  return { [`${name}/mean`]: sum / values.length, [`${name}/min`]: min, [`${name}/max`]: max };
}
