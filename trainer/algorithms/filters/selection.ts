import { FILTER_STRATEGIES, STRATEGIES } from './registry.ts';
import type { SelectionSettings } from './settings.ts';
import type { SelectionStrategy } from './strategy.ts';

/** Scores up to this size count as zero: every episode of the group went alike. */
export const ZERO_SCORE = 1e-10;

/**
 * Positions of the groups to keep, ascending.
 *
 * Source: RAGEN V2 `RolloutFilter._select_top_groups`.
 * @throws RangeError for an unknown strategy, listing the valid ones
 */
export function selectGroups(scores: readonly number[], settings: SelectionSettings): number[] {
  if (!Object.hasOwn(STRATEGIES, settings.strategy)) {
    throw new RangeError(
      `no filter strategy "${settings.strategy}"; choose one of ${FILTER_STRATEGIES.join(', ')}`,
    );
  }
  const candidates = scores
    .map((_, i) => i)
    .filter(i => settings.includeZero || Math.abs(scores[i]) > ZERO_SCORE);
  if (candidates.length === 0) return [];
  const select: SelectionStrategy = STRATEGIES[settings.strategy];
  const kept = select(
    candidates.map(i => scores[i]),
    settings,
    scores.length,
  );
  return kept.map(i => candidates[i]).sort((a, b) => a - b);
}
