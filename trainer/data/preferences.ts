import type { RunSettings } from '../config/settings.ts';
import type { KeptEpisode } from './experience.ts';
import { trainedReturn } from './reward-components.ts';

/** Two episodes from one start, of which one is better. */
export interface PreferencePair {
  readonly chosen: KeptEpisode;
  readonly rejected: KeptEpisode;
}

/**
 * The best and the worst episode of each group by their returns, penalties included; the first among equals. Groups
 * with a gap of at most `algorithm.preference_gap` between the two have no pair.
 */
export function preferencePairs(
  groups: readonly (readonly KeptEpisode[])[],
  { algorithm }: Pick<RunSettings, 'algorithm'>,
): PreferencePair[] {
  return groups.flatMap(group => {
    const returns = group.map(({ episode }) => trainedReturn(episode, algorithm.reward_components));
    const [best, worst] = [Math.max(...returns), Math.min(...returns)];
    if (!(best - worst > algorithm.preference_gap)) return [];
    return [{ chosen: group[returns.indexOf(best)], rejected: group[returns.indexOf(worst)] }];
  });
}
