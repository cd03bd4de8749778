import { countedTurns, type Episode, type RewardSums } from '../rollout/episode.ts';

/** Weights of reward components by name; null: the environment's reward and the format penalty as they are. */
export type RewardWeights = Readonly<Record<string, number>> | null;

/** Components that every turn has: the environment's reward, and the trainer's format penalty. */
const OWN = {
  reward: ({ reward }: RewardSums) => reward,
  format_penalty: ({ penalty }: RewardSums) => penalty,
} as const;

/** A component of a turn's reward; 0 where the environment did not return it. */
function component(turn: RewardSums, name: string): number {
  return Object.hasOwn(OWN, name) ? OWN[name as keyof typeof OWN](turn) : (turn.rewards?.[name] ?? 0);
}

/** A turn's reward in training, or that of several together. */
export function trainedReward(turn: RewardSums, weights: RewardWeights): number {
  if (weights === null) return turn.reward + turn.penalty;
  return Object.entries(weights).reduce((sum, [name, weight]) => sum + weight * component(turn, name), 0);
}

/** An episode's return in training, without the rewards of a prefix, which all members of its group share. */
export function trainedReturn(episode: Episode, weights: RewardWeights): number {
  return countedTurns(episode).reduce((sum, turn) => sum + trainedReward(turn, weights), 0);
}

/** The episode's total of each component with a weight. */
export function episodeComponents(episode: Episode, weights: RewardWeights): Record<string, number> {
  const turns = countedTurns(episode);
  return Object.fromEntries(
    Object.keys(weights ?? {}).map(name => [
      name,
      turns.reduce((sum, turn) => sum + component(turn, name), 0),
    ]),
  );
}

/**
 * @throws RangeError when no episode has a component that has a weight: the name is wrong, or the environment returns
 * none
 */
export function checkComponents(episodes: readonly Episode[], weights: RewardWeights): void {
  if (weights === null || episodes.length === 0) return;
  const known = new Set<string>(Object.keys(OWN));
  for (const { turns } of episodes) {
    for (const { rewards } of turns) for (const name of Object.keys(rewards ?? {})) known.add(name);
  }
  const unknown = Object.keys(weights).filter(name => !known.has(name));
  if (unknown.length === 0) return;
  throw new RangeError(
    `algorithm.reward_components names ${unknown.join(', ')}, which no step of this iteration returned in info.rewards; there are ${[...known].join(', ')}`,
  );
}
