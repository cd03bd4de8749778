import type { StrategySettings } from './strategy.ts';
import { sortedPositions } from './strategy.ts';

/**
 * The best ⌊value · groups⌋ groups, at least one. `total` counts the groups before zero scores were dropped.
 * @returns kept positions, best first
 */
export function topK(scores: readonly number[], settings: StrategySettings, total: number): number[] {
  return best(scores, settings, Math.trunc(settings.value * total));
}

/** The best `value` groups, at least one. */
export function topKAbs(scores: readonly number[], settings: StrategySettings): number[] {
  return best(scores, settings, Math.trunc(settings.value));
}

function best(scores: readonly number[], { order }: StrategySettings, count: number): number[] {
  return sortedPositions(scores, order).slice(0, Math.max(count, 1));
}
