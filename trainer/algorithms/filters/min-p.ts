import type { StrategySettings } from './strategy.ts';

/** Tolerance that keeps rounding from deciding a comparison. */
const SLACK = 1e-10;

/**
 * All groups close to the best one: score ≥ value · max, or score ≤ min / value when the smallest are best.
 * @returns kept positions in order
 */
export function minP(scores: readonly number[], { value, order }: StrategySettings): number[] {
  const largest = order === 'largest';
  const bound = largest
    ? Math.max(...scores) * value - SLACK
    : Math.min(...scores) / Math.max(value, SLACK) + SLACK;
  return scores.flatMap((score, i) => ((largest ? score >= bound : score <= bound) ? [i] : []));
}
