import { mean, positionsBy, unbiasedStd } from '../statistics.ts';
import {
  type AdvantageEstimator,
  type AdvantageSequence,
  type AdvantageSettings,
  outcome,
  spread,
} from './estimator.ts';

/** Keeps quotients by a standard deviation finite, as RAGEN and verl have it. */
export const STD_FLOOR = 1e-6;

/** A sequence's outcome next to the statistics of its group; each episode of the group counts once. */
export interface GroupOutcome {
  readonly score: number;
  /** Mean and unbiased standard deviation over the group's episodes; 0 and 1 in a group of one episode. */
  readonly mean: number;
  readonly std: number;
  /** Number of episodes in the group. */
  readonly episodes: number;
  /** Batch positions of the sequences that represent the group's episodes. */
  readonly members: readonly number[];
}

/** Key of a sequence's episode in the batch: another server may give the same id to an episode of another group. */
export const episodeKey = ({ groupId, episodeId }: AdvantageSequence, index: number): string =>
  episodeId === undefined ? `#${index}` : JSON.stringify([groupId, episodeId]);

/**
 * Group statistics for every sequence. Sequences of one episode (context modes with a sample per turn) carry the same
 * reward and count once; otherwise long episodes would weigh more (RAGEN V2 `compute_grpo_outcome_advantage`).
 * @param scores values to compare; the sums of the rewards when absent
 */
export function groupOutcomes(
  sequences: readonly AdvantageSequence[],
  scores: readonly number[] = sequences.map(outcome),
): GroupOutcome[] {
  const result = new Array<GroupOutcome>(sequences.length);
  for (const positions of positionsBy(sequences, sequence => sequence.groupId).values()) {
    const members = episodesAmong(sequences, positions).map(([first]) => first);
    const values = members.map(position => scores[position]);
    const single = members.length === 1;
    const statistics = { mean: single ? 0 : mean(values), std: single ? 1 : unbiasedStd(values) };
    for (const position of positions) {
      result[position] = { score: scores[position], ...statistics, episodes: members.length, members };
    }
  }
  return result;
}

/** Positions of the sequences of each episode, among these positions of one group. */
export function episodesAmong(
  sequences: readonly AdvantageSequence[],
  positions: readonly number[],
): number[][] {
  const episodes = positionsBy(positions, position => sequences[position].episodeId ?? { position });
  return [...episodes.values()].map(own => own.map(index => positions[index]));
}

/** @throws RangeError where an episode is cut into several sequences */
export function requireWholeEpisodes(name: string, sequences: readonly AdvantageSequence[]): void {
  if (positionsBy(sequences, episodeKey).size === sequences.length) return;
  throw new RangeError(
    `${name} needs one sequence per episode, got several of one episode: use context mode full`,
  );
}

/** R − mean of the group, in standard deviations if `byStd`. */
export function compared({ score, mean, std }: Omit<GroupOutcome, 'members'>, byStd: boolean): number {
  return byStd ? (score - mean) / (std + STD_FLOOR) : score - mean;
}

/** An estimator with one value for each sequence, by the outcomes of its group: all sampled tokens have it. */
export function groupEstimator(
  valuesOf: (
    groups: readonly GroupOutcome[],
    sequences: readonly AdvantageSequence[],
    settings: AdvantageSettings,
  ) => ArrayLike<number>,
): AdvantageEstimator {
  return {
    needs: ['groups'],
    perSequence: true,
    estimate(sequences, settings) {
      const advantages = spread(sequences, valuesOf(groupOutcomes(sequences), sequences, settings));
      return { advantages, returns: advantages };
    },
  };
}

/** Standard deviation of each sequence's group, for `soft_advantage_reweight`. */
export function groupStds(sequences: readonly AdvantageSequence[]): Float64Array {
  return Float64Array.from(groupOutcomes(sequences), group => group.std);
}
