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

/**
 * Nucleus selection of groups. `linear`: best first, keep adding until the kept scores reach p·Σ − ε; stops at a
 * score ≤ 0, and keeps none if the sum was not reached by then. `softmax`: the smallest set of best groups with
 * a softmax mass of at least p. p ≥ 1 keeps all.
 *
 * @returns kept positions, best first
 */
export function topP(scores: readonly number[], settings: StrategySettings): number[] {
  if (settings.value >= 1) return scores.map((_, i) => i);
  return settings.mass === 'softmax' ? softmaxMass(scores, settings) : linearMass(scores, settings);
}

function linearMass(scores: readonly number[], { value, order, epsilon }: StrategySettings): number[] {
  const threshold = value * scores.reduce((sum, score) => sum + score, 0) - epsilon;
  const kept: number[] = [];
  let sum = 0;
  for (const position of sortedPositions(scores, order)) {
    if (sum >= threshold || scores[position] <= 0) break;
    sum += scores[position];
    kept.push(position);
  }
  return sum >= threshold ? kept : [];
}

function softmaxMass(scores: readonly number[], { value, order }: StrategySettings): number[] {
  const logits = order === 'largest' ? scores : scores.map(score => -score);
  const highest = Math.max(...logits);
  const masses = logits.map(logit => Math.exp(logit - highest));
  const total = masses.reduce((sum, mass) => sum + mass, 0);
  const kept: number[] = [];
  let sum = 0;
  for (const position of sortedPositions(scores, order)) {
    kept.push(position);
    sum += masses[position] / total;
    if (sum >= value) break;
  }
  return kept;
}

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
