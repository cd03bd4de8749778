import { mean, populationStd } from '../algorithms/statistics.ts';
import type { Episode } from '../rollout/episode.ts';
import { groupBy } from './episode-metrics.ts';

/** Weight of the next turn's rewards in what a turn led to: later ones are due to later actions more and more. */
const NEXT_TURN = 0.5;
/** Standard deviations below the mean from which a turn is poor. Where nearly all turns earn the same, none is. */
const POOR = 0.25;
const ROUNDING = 1e-9;

/**
 * Marks the turns that were followed by less reward than usual as nothing to imitate. Usual is what all turns of the same environment
 * in these episodes were followed by: random play that pays for some actions and charges for others teaches when to take them.
 */
export function withoutPoorTurns<E extends Pick<Episode, 'tag' | 'turns'>>(
  episodes: readonly E[],
): readonly E[] {
  const bounds = new Map(
    [...groupBy(episodes, ({ tag }) => tag)].map(([tag, some]) => {
      const all = some.flatMap(rewardsAfter);
      return [tag, mean(all) - POOR * populationStd(all) - ROUNDING] as const;
    }),
  );
  return episodes.map(episode => {
    const after = rewardsAfter(episode);
    const turns = episode.turns.map((turn, i) =>
      after[i] < bounds.get(episode.tag)! && !turn.exploratory
        ? { ...turn, exploratory: true as const }
        : turn,
    );
    return { ...episode, turns };
  });
}

/** Rewards of each turn and the following ones, discounted. */
function rewardsAfter({ turns }: Pick<Episode, 'turns'>): number[] {
  let following = 0;
  return turns
    .map(({ reward, penalty }) => reward + penalty)
    .reverse()
    .map(reward => {
      following = reward + NEXT_TURN * following;
      return following;
    })
    .reverse();
}
