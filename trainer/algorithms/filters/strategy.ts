export type FilterOrder = (typeof FILTER_ORDERS)[number];
export const FILTER_ORDERS = ['largest', 'smallest'] as const;

export type FilterMass = (typeof FILTER_MASSES)[number];
export const FILTER_MASSES = ['linear', 'softmax'] as const;

/** Settings of a strategy. */
export interface StrategySettings {
  /** p of `top_p` and `min_p`, share of groups of `top_k`, number of groups of `top_k_abs`. */
  readonly value: number;
  readonly order: FilterOrder;
  /** Total that p is a share of in `top_p`: the sum of the scores, or of their softmax. */
  readonly mass: FilterMass;
  /** Tolerance of `top_p`: the kept groups may fall this far short of p times the sum. */
  readonly epsilon: number;
}

/**
 * Chooses groups by their scores.
 * @param total groups before zero scores were dropped
 * @returns kept positions
 */
export type SelectionStrategy = (
  scores: readonly number[],
  settings: StrategySettings,
  total: number,
) => number[];

/** Positions of the scores, best first; equal scores keep their order. */
export function sortedPositions(scores: readonly number[], order: FilterOrder): number[] {
  const sign = order === 'largest' ? -1 : 1;
  return scores.map((_, i) => i).sort((a, b) => sign * (scores[a] - scores[b]));
}
