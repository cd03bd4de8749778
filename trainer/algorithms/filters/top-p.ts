import type { StrategySettings } from './strategy.ts';
import { sortedPositions } from './strategy.ts';

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
