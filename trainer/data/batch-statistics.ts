import type { TrainingSequence } from '../algorithms/training-sequence.ts';
import { type Episode, episodeReturn } from '../rollout/episode.ts';
import type { Metrics } from './metrics.ts';

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
