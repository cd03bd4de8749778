import { minP } from './min-p.ts';
import type { SelectionStrategy } from './strategy.ts';
import { topK, topKAbs } from './top-k.ts';
import { topP } from './top-p.ts';

/** Every filter strategy by its name in `algorithm.filter.strategy`; a new one is a line here. */
export const STRATEGIES = {
  none: scores => scores.map((_, i) => i),
  top_p: topP,
  top_k: topK,
  top_k_abs: topKAbs,
  min_p: minP,
} satisfies Record<string, SelectionStrategy>;

export type FilterStrategy = keyof typeof STRATEGIES;
export const FILTER_STRATEGIES = Object.keys(STRATEGIES) as readonly FilterStrategy[];
