import type { FilterOrder } from './strategy.ts';

/** Positions of the scores, best first; equal scores keep their order. */
export function sortedPositions(scores: readonly number[], order: FilterOrder): number[] {
  const sign = order === 'largest' ? -1 : 1;
  return scores.map((_, i) => i).sort((a, b) => sign * (scores[a] - scores[b]));
}
