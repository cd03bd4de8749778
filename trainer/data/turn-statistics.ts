import { correlation, mean, populationStd } from '../algorithms/statistics.ts';
import type { Metrics } from './metrics.ts';

/** A sequence with its advantages. */
export interface TurnAdvantages {
  readonly lossMask: ArrayLike<number>;
  readonly advantages: ArrayLike<number>;
  /** Position of each turn's last sampled token, ascending. */
  readonly turnEnds: readonly number[];
}

/**
 * `critic/advantages/{std,zero_frac}` over the trained tokens, and whether advantages depend on the number of turns:
 * `critic/advantages/last_turn` and `other_turns`, means over turns (a turn counts with the mean over its tokens), and
 * `critic/advantages/turns_correlation` of an episode's mean advantage with its number of turns. Undefined values are
 * absent: the correlation of equal episodes, other turns if there are none.
 */
export function turnStatistics(sequences: readonly TurnAdvantages[]): Metrics {
  const last: number[] = [];
  const other: number[] = [];
  const [counts, advantagesOf]: [number[], number[]] = [[], []];
  for (const { lossMask, advantages, turnEnds } of sequences) {
    const turns = turnEnds.map((end, k) => {
      let [sum, count] = [0, 0];
      for (let t = k === 0 ? 0 : turnEnds[k - 1] + 1; t <= end; t++) {
        if (!lossMask[t]) continue;
        sum += advantages[t];
        count++;
      }
      return sum / Math.max(1, count);
    });
    if (turns.length === 0) continue;
    other.push(...turns.slice(0, -1));
    last.push(turns.at(-1)!);
    counts.push(turns.length);
    advantagesOf.push(mean(turns));
  }
  const turnsCorrelation = correlation(counts, advantagesOf);
  const tokens = sequences.flatMap(({ lossMask, advantages }) =>
    Array.from(advantages).filter((_, t) => lossMask[t]),
  );
  const zeros = tokens.filter(value => value === 0).length;
  return {
    ...(tokens.length > 0
      ? {
          'critic/advantages/std': populationStd(tokens),
          'critic/advantages/zero_frac': zeros / tokens.length,
        }
      : {}),
    ...(last.length > 0 ? { 'critic/advantages/last_turn': mean(last) } : {}),
    ...(other.length > 0 ? { 'critic/advantages/other_turns': mean(other) } : {}),
    ...(Number.isFinite(turnsCorrelation) ? { 'critic/advantages/turns_correlation': turnsCorrelation } : {}),
  };
}
