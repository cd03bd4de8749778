import { FILTER_STRATEGIES, type FilterStrategy } from './registry.ts';
import { FILTER_MASSES, FILTER_ORDERS, type StrategySettings } from './strategy.ts';

export type FilterScore = (typeof FILTER_SCORES)[number];
export const FILTER_SCORES = [
  'reward_std',
  'reward_mean',
  'reward_sum',
  'reward_max',
  'entropy',
  'entropy_std',
  'length',
] as const;

export type FilterFill = (typeof FILTER_FILLS)[number];
export const FILTER_FILLS = ['refill', 'copy', 'delete', 'pad'] as const;

export type FilterLossScaling = (typeof FILTER_LOSS_SCALINGS)[number];
export const FILTER_LOSS_SCALINGS = ['none', 'linear', 'sqrt'] as const;

/** Which groups are kept. The defaults keep all; recommended: top_p 0.9 linear with includeZero false. */
export interface SelectionSettings extends StrategySettings {
  readonly strategy: FilterStrategy;
  /** True if groups with |score| ≤ 1e-10 may be kept. */
  readonly includeZero: boolean;
}

export interface FilterSettings extends SelectionSettings {
  readonly score: FilterScore;
}

export const DEFAULT_FILTER_SETTINGS: FilterSettings = {
  strategy: 'none',
  value: 1,
  score: 'reward_std',
  order: 'largest',
  mass: 'linear',
  includeZero: true,
  epsilon: 0.01,
};

/**
 * Rejects settings without a meaning.
 * @throws RangeError naming the setting, what is wrong with it and what would be right
 */
export function checkFilterSettings(settings: FilterSettings, groupSize: number): void {
  choose('filter.strategy', settings.strategy, FILTER_STRATEGIES);
  choose('filter.score', settings.score, FILTER_SCORES);
  choose('filter.order', settings.order, FILTER_ORDERS);
  choose('filter.mass', settings.mass, FILTER_MASSES);
  const { strategy, value, score } = settings;
  if (strategy === 'top_k_abs') {
    if (!Number.isInteger(value) || value < 1) {
      throw new RangeError(
        `filter.value is ${value}; top_k_abs keeps that many groups: a whole number from 1`,
      );
    }
  } else if (!(value > 0 && value <= 1)) {
    throw new RangeError(`filter.value is ${value}; ${strategy} takes a share: above 0, at most 1`);
  }
  const comparesMembers = score === 'reward_std' || score === 'entropy_std';
  const filters = strategy !== 'none' || !settings.includeZero;
  if (filters && comparesMembers && groupSize < 2) {
    throw new RangeError(
      `filter.score ${score} compares the episodes of a group, but group_size is ${groupSize}: use at least 2`,
    );
  }
}

function choose(name: string, value: string, choices: readonly string[]): void {
  if (!choices.includes(value)) {
    throw new RangeError(`${name} is "${value}"; choose one of ${choices.join(', ')}`);
  }
}
